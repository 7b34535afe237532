package v1

import (
	"net/netip"
	"time"
)

// PoolSpec is a pool of the cluster: the body of PUT /v1/pool/{name}, and the answer of GET. A field that a request
// leaves out gets its default.
type PoolSpec struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
	// IPv4BlockBits and IPv6BlockBits are the prefix lengths of the blocks that nodes claim. They cannot change.
	IPv4BlockBits int `json:"ipv4BlockBits,omitempty"`
	IPv6BlockBits int `json:"ipv6BlockBits,omitempty"`
	// Exclude are ranges of the prefixes that are not given out. Addresses in use stay.
	Exclude []netip.Prefix `json:"exclude,omitempty"`
	// NodeSelector are labels that a node must have to claim blocks of the pool; none is every node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// AllowedNamespaces are the namespaces whose pods may have addresses; none is every namespace. A pod that has one
	// keeps it.
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
	// Disabled pools are not claimed from, and no more addresses are given out of them. Addresses in use stay.
	Disabled bool `json:"disabled,omitempty"`
	// Quarantine is how long a released address rests, in nanoseconds, 20 minutes at the most; 30 seconds when it is not
	// there.
	Quarantine *time.Duration `json:"quarantine,omitempty"`
	// ReuseResting allows the longest resting address to be given out when nothing else is free.
	ReuseResting bool `json:"reuseResting,omitempty"`
	// State is "pending", "accepted", "deleting" or, when its record cannot be read, "unreadable": nodes claim blocks of
	// accepted pools alone. It is of answers alone.
	State string `json:"state,omitempty"`
	// Version is the version of the pool that was read. A request with a version is refused when the pool has changed
	// since.
	Version string `json:"version,omitempty"`
	// Warnings say what may not be meant, such as fewer blocks than nodes. They are of answers alone, and ignored in a
	// request.
	Warnings []string `json:"warnings,omitempty"`
	// Use is how full the pool is, one a family that it has. It is of answers alone, and ignored in a request.
	Use []PoolUse `json:"use,omitempty"`
	// Draining are the blocks that nodes still have of addresses that were taken out of the pool, or excluded: nothing
	// more of them is given out. They are of answers alone, and ignored in a request.
	Draining []PoolBlock `json:"draining,omitempty"`
}

// PoolUse is how many blocks of a family a pool has, and how many of them nodes own.
type PoolUse struct {
	Family string `json:"family"` // "ipv4" or "ipv6"
	Blocks int64  `json:"blocks"` // that have an address that is not excluded; 1<<62 at the most
	Owned  int64  `json:"owned"`  // by nodes, wholly or in part
	Nodes  int    `json:"nodes"`  // that own some
}

// PoolBlock is a block of a pool, and the node that has it.
type PoolBlock struct {
	CIDR netip.Prefix `json:"cidr"`
	Node string       `json:"node"` // its name
	Key  string       `json:"key"`  // which incarnation of the name it is
}
