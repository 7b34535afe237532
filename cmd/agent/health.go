package main

import (
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/node"
)

// peersOf are the other nodes, for the health cell to probe.
type peersOf struct{ peers *node.Peers }

var _ probe.Peers = peersOf{}

// Peers implements [probe.Peers].
func (p peersOf) Peers() (networks []cluster.NodeNetwork) {
	view, _ := p.peers.View()
	for _, peer := range view.Peers {
		n := peer.NodeNetwork
		if view.Tunnels(peer) {
			n.Routing = cluster.RoutingVXLAN
		}
		networks = append(networks, n)
	}
	return networks
}

// Changed implements [probe.Peers].
func (p peersOf) Changed() <-chan struct{} {
	_, changed := p.peers.View()
	return changed
}

func (p peersOf) names() (names []string) {
	view, _ := p.peers.View()
	for _, peer := range view.Peers {
		names = append(names, peer.Node.Name)
	}
	return names
}
