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
	Capacity    int64        `json:"capacity"` // addresses that may be given out; network, broadcast and gateway are not among them
	Used        int64        `json:"used"`
	Quarantined int64        `json:"quarantined"` // released a short while ago
	Free        int64        `json:"free"`
}

// Allocation is one address in use.
type Allocation struct {
	Address netip.Addr `json:"address"`
	// Pool is "external" when another IPAM gave the address. Where it lies in a prefix of a pool it counts there as used.
	Pool  string    `json:"pool"`
	Owner string    `json:"owner"` // containerID:ifname of the attachment
	Since time.Time `json:"since"`
}
