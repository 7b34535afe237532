package health_test

import (
	"net/netip"

	"porin.dev/porin/cells/cluster"
)

// staticPeers are a cluster of one other node.
type staticPeers struct{}

func (staticPeers) Peers() []cluster.NodeNetwork {
	return []cluster.NodeNetwork{{Node: cluster.NodeID{Name: "node2"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, Routing: cluster.RoutingNative}}
}

func (staticPeers) Changed() <-chan struct{} { return nil }
