package main

import (
	"context"
	"fmt"
	"log/slog"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/ipam/localblocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/boottime"
)

// node is what an agent has of addresses, without the agent.
type node struct {
	ipam.Node
	store   *counted
	manager *blocks.Manager
}

// newNode returns the one of a number, as long a name as cloud providers give, and blocks in the store.
func newNode(s store.Store, number int) (*node, error) {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	allocator, err := ipam.NewNode(cfg)
	if err != nil {
		return nil, err
	}
	n := &node{Node: allocator, store: &counted{Store: s}}
	own := blocks.DefaultConfig()
	own.Node = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", number>>8, number&255)
	n.manager, err = blocks.New(own, n.store, localblocks.New(n.MultiPool), boottime.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	n.MultiPool.Ask(ipam.MoreFunc(func(ctx context.Context, pool string, want endpointmanager.Addresses) error {
		return n.manager.More(ctx, pool, want.List()...)
	}))
	n.manager.Start()
	return n, nil
}

// fill has pods of these numbers come.
func (n *node) fill(ctx context.Context, from, to int) error {
	for i := from; i < to; i++ {
		if _, err := n.Allocator.Allocate(ctx, ipam.Request{Owner: handle(i)}); err != nil {
			return err
		}
	}
	return nil
}
