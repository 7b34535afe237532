package probe

import (
	"net/netip"

	"porin.dev/porin/cells/cluster"
)

// Target is what of a node is probed.
type Target string

// The targets.
const (
	Node     Target = "node"     // one of its own addresses
	Endpoint Target = "endpoint" // its health endpoint
)

// Protocol is how it is probed.
type Protocol string

// The protocols.
const (
	ICMP Protocol = "icmp"
	HTTP Protocol = "http"
)

// Path is one way to reach a node.
type Path struct {
	Target   Target
	Protocol Protocol
	Family   cluster.Family
}

// pathCount is how many paths a node has at most.
const pathCount = 6

// Paths are all of them, in the order in which they are shown.
func Paths() [pathCount]Path {
	return [pathCount]Path{
		{Node, ICMP, cluster.IPv4},
		{Node, ICMP, cluster.IPv6},
		{Endpoint, ICMP, cluster.IPv4},
		{Endpoint, ICMP, cluster.IPv6},
		{Endpoint, HTTP, cluster.IPv4},
		{Endpoint, HTTP, cluster.IPv6},
	}
}

// addressOf is where the path leads; the zero Addr when the node has published no such address.
func (p Path) addressOf(n cluster.NodeNetwork) netip.Addr {
	addresses := n.Addresses
	if p.Target == Endpoint {
		addresses = n.Health
	}
	for _, addr := range addresses {
		if cluster.FamilyOf(addr) == p.Family {
			return addr
		}
	}
	return netip.Addr{}
}
