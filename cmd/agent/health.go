package main

import (
	"context"
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/node"
)

// peersOf is what the health cell asks of the node: whom to probe, and which addresses the health endpoint had.
type peersOf struct{ peers *node.Peers }

var (
	_ probe.Peers              = peersOf{}
	_ health.RecordedAddresses = peersOf{}
)

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

// RecordedHealth implements [health.RecordedAddresses]: it waits until the node's record is known.
func (p peersOf) RecordedHealth(ctx context.Context) ([]netip.Addr, error) {
	for {
		view, changed := p.peers.View()
		switch {
		case view.Ready && view.Own != nil:
			return view.Own.Health, nil
		case view.Ready && !view.StoreAway && view.Self.Node.Key != "":
			return nil, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the node's record: %w", ctx.Err())
		}
	}
}

func (p peersOf) names() (names []string) {
	view, _ := p.peers.View()
	for _, peer := range view.Peers {
		names = append(names, peer.Node.Name)
	}
	return names
}
