package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/store"
)

const (
	podsPerNode  = 110
	nodes        = 5000
	sampledNodes = 200 // that are really there; all are alike
	claims       = 50

	blocksPrefix = "blocks/" // of the store's keys
	nodesPrefix  = "nodes/"

	sessionsPrefix = "sessions/"
)

// measureStore has nodes claim blocks of one pool in a real etcd.
func measureStore(ctx context.Context) (_ figures, err error) {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, err := startEtcd(dir)
	if err != nil {
		return nil, err
	}
	defer etcd.Close()
	s, err := store.New(inEtcd(dir), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	pool := cluster.Pool{
		Name: multipool.DefaultPool, IPv4BlockBits: 26, IPv6BlockBits: 122,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12"), netip.MustParsePrefix("fd00:10:244::/108")},
	}
	if _, err := multipool.NewPoolAdmin(cluster.OnStore(s)).Put(ctx, pool); err != nil {
		return nil, err
	}
	return measureCluster(ctx, s)
}

func measureCluster(ctx context.Context, s store.Service) (_ figures, err error) {
	f := figures{}
	for i := range sampledNodes {
		n, err := newNode(s, i)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.stop(ctx)) }()
		if err := n.fill(ctx, 0, podsPerNode); err != nil {
			return nil, err
		}
		if i == 0 {
			if err := measurePods(ctx, n, f); err != nil {
				return nil, err
			}
		}
	}
	if err := measureSize(ctx, s, f); err != nil {
		return nil, err
	}
	one, err := newNode(s, sampledNodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, one.stop(ctx)) }()
	return f, measureClaims(ctx, one, f)
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

// measureSize counts what is there, and what there would be of the whole cluster.
func measureSize(ctx context.Context, s store.Service, f figures) error {
	for after, more := "", true; more; {
		var entries []store.Entry
		var err error
		if entries, more, err = s.Page(ctx, "", after, 500); err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Key
			measureEntry(e, f)
		}
	}
	return nil
}

func measureEntry(e store.Entry, f figures) {
	size, times := float64(len(e.Key)+len(e.Value)), 1.0 // what is of no node is there once
	if strings.HasPrefix(e.Key, blocksPrefix) {
		times = nodes / sampledNodes
		f["blocks"] += times
		f["bytes-per-block"] = max(f["bytes-per-block"], size)
	} else if strings.HasPrefix(e.Key, nodesPrefix) || strings.HasPrefix(e.Key, sessionsPrefix) {
		times = nodes / sampledNodes
	}
	f["objects"] += times
	f["bytes"] += size * times
}

// measureClaims counts the calls of a node that needs one block after the other.
func measureClaims(ctx context.Context, n *node, f figures) error {
	if err := n.fill(ctx, 0, podsPerNode); err != nil { // until it has begun
		return err
	}
	calls, claimed := n.store.calls.Load(), n.store.claims.Load()
	for i := podsPerNode; n.store.claims.Load()-claimed < claims; i++ {
		if err := n.fill(ctx, i, i+1); err != nil {
			return err
		}
	}
	f["round-trips"] = float64(n.store.calls.Load()-calls) / float64(n.store.claims.Load()-claimed)
	return nil
}
