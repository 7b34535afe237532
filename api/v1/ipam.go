package v1

import (
	"net/netip"
	"time"
)

// IPAM is the answer of GET /v1/ipam.
type IPAM struct {
	Mode        string       `json:"mode"`
	Pools       []Pool       `json:"pools"`
	Allocations []Allocation `json:"allocations"`
}

// Pool is one named set of address ranges.
type Pool struct {
	Name   string  `json:"name"`
	Ranges []Range `json:"ranges"`
}

// Range is one prefix of a pool. Capacity = Used + Quarantined + Free.
type Range struct {
	Prefix      netip.Prefix `json:"prefix"`
	Capacity    int64        `json:"capacity"` // addresses that may be given out, without network, broadcast and gateway; a prefix of more than 2^48 counts as 2^48
	Used        int64        `json:"used"`
	Quarantined int64        `json:"quarantined"` // released a short while ago
	Free        int64        `json:"free"`
	// Drained says that its free addresses are not given out any more.
	Drained bool `json:"drained,omitempty"`
	// NodeAddresses are addresses of the prefix that an interface of the node itself has, a leftover bridge for instance.
	// They are not given out and count nowhere above, except an address that an owner had before the node.
	NodeAddresses []netip.Addr `json:"nodeAddresses,omitempty"`
}

// Allocation is one address in use.
type Allocation struct {
	Address netip.Addr `json:"address"`
	// Pool is "external" when another IPAM gave the address, and "" when it is not known: of a held endpoint that the
	// ledger does not have. Where the address lies in a prefix of a pool it counts there as used.
	Pool  string `json:"pool"`
	Owner string `json:"owner"` // containerID:ifname of the attachment, or whoever reserved it
	// Unnamed says that the owner is held, and that only its host end is known, not its container: Owner is "link/48",
	// where 48 is the index of the host end, or has its name instead.
	Unnamed bool `json:"unnamed,omitempty"`
	// ContainerID and IfName are the attachment's; not there for a reservation and for what is unnamed.
	ContainerID string `json:"containerID,omitempty"`
	IfName      string `json:"ifname,omitempty"`
	// Pod has the namespace and name, when the attachment's pod is known.
	Pod   Pod       `json:"pod,omitzero"`
	Since time.Time `json:"since"`
	// Expires is when a reservation ends; it is not there for an endpoint's address.
	Expires time.Time `json:"expires,omitzero"`
	// Permanent says that it is a reservation without an end. An endpoint may use it.
	Permanent bool `json:"permanent,omitempty"`
}

// ReservationRequest is the body of POST /v1/ipam: one address of each family of the pool, for a user that is no
// endpoint.
type ReservationRequest struct {
	// Owner is who reserves; a name of the caller's choice, that has nothing yet.
	Owner string `json:"owner"`
	// Pool is "default" when it is not there.
	Pool string `json:"pool,omitempty"`
	// Addresses asks for these very addresses, at most one a family; a family not named gets any.
	Addresses Addresses `json:"addresses,omitzero"`
	// Expires is how long the reservation lasts, in nanoseconds: 10 minutes when it is not there, at most an hour. It
	// outlives the agent and the boot.
	Expires time.Duration `json:"expires,omitempty"`
	// Permanent asks for a reservation without an end, also by an endpoint that takes it over. Expires is not there then.
	Permanent bool `json:"permanent,omitempty"`
}

// Reservation is the answer of POST /v1/ipam, and of DELETE /v1/ipam/{ip}, which has the ended reservation.
type Reservation struct {
	Owner     string    `json:"owner"`
	Pool      string    `json:"pool"`
	Addresses Addresses `json:"addresses"`
	// Token stops this reservation and no later one of the same address.
	Token   string    `json:"token,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	// Permanent says that it has no end.
	Permanent bool `json:"permanent,omitempty"`
}
