package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/cells/ipam/multipool"
)

const (
	podsPerNode   = 110
	nodes         = 5000
	sampledNodes  = 200 // of simulations, that are really there; all are alike
	measuredNodes = 20  // of measurements in real time
)

// inStore has these measure in an embedded store, each in one of its own.
func inStore(ctx context.Context, measures ...func(context.Context, cluster.Backend, figures) error) (figures, error) {
	f := figures{}
	for _, measure := range measures {
		if err := withStore(ctx, defaultPool, func(b cluster.Backend) error { return measure(ctx, b, f) }); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// withStore calls with the records of a store of its own, which has the pool.
func withStore(ctx context.Context, pool cluster.Pool, call func(cluster.Backend) error) (err error) {
	dir, err := os.MkdirTemp("/dev/shm", "scale") // calls are counted: how long a disk takes is of no interest
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := embedded.New(dir, slog.New(slog.DiscardHandler))
	if err := s.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	if _, err := admin.NewPools(s.Backend()).Put(ctx, pool); err != nil {
		return err
	}
	return call(s.Backend())
}

var defaultPool = cluster.Pool{
	Name: multipool.DefaultPool, IPv4BlockBits: 26, IPv6BlockBits: 122,
	Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12"), netip.MustParsePrefix("fd00:10:244::/108")},
}

// measureCluster counts what the pods of nodes cost the store, and the blocks that the whole cluster has then.
func measureCluster(ctx context.Context, b cluster.Backend, f figures) (err error) {
	for i := range measuredNodes {
		n, err := startNode(b, i)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.stop(ctx)) }()
		if err := n.fill(ctx, 0, podsPerNode); err != nil {
			return err
		}
		if i == 0 {
			if err := measurePods(ctx, n, f); err != nil {
				return err
			}
		}
	}
	for _, err := range b.Blocks.All(ctx, cluster.BlockFilter{}) {
		if err != nil {
			return err
		}
		f["blocks"] += nodes / measuredNodes
	}
	return nil
}

// measurePods counts the writes while all pods of a node that has its blocks go and come again, one by one.
func measurePods(ctx context.Context, n *node, f figures) error {
	before := n.store.writes.Load()
	for i := range podsPerNode {
		n.Release(handle(i))
		if err := n.fill(ctx, i, i+1); err != nil {
			return err
		}
	}
	f["writes-per-pod"] = float64(n.store.writes.Load()-before) / podsPerNode
	return nil
}
