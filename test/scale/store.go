package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/onstore"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/store"
)

const (
	podsPerNode  = 110
	nodes        = 5000
	sampledNodes = 200 // that are really there; all are alike

	blocksPrefix = "blocks/" // of the store's keys
	nodesPrefix  = "nodes/"

	sessionsPrefix = "sessions/"
)

// inStore has these measure in a real etcd, each in one of its own.
func inStore(ctx context.Context, measures ...func(context.Context, *inEtcd, figures) error) (figures, error) {
	f := figures{}
	for _, measure := range measures {
		if err := withEtcd(ctx, defaultPool, func(s *inEtcd) error { return measure(ctx, s, f) }); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// withEtcd calls with a store in an etcd of its own, which has the pool.
func withEtcd(ctx context.Context, pool cluster.Pool, call func(*inEtcd) error) (err error) {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, err := startEtcd(dir)
	if err != nil {
		return err
	}
	defer etcd.Close()
	s, err := openStore(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	if _, err := admin.NewPools(onstore.New(s)).Put(ctx, pool); err != nil {
		return err
	}
	return call(s)
}

var defaultPool = cluster.Pool{
	Name: multipool.DefaultPool, IPv4BlockBits: 26, IPv6BlockBits: 122,
	Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12"), netip.MustParsePrefix("fd00:10:244::/108")},
}

// measureCluster counts what the pods of nodes cost the store, and what is there then.
func measureCluster(ctx context.Context, s *inEtcd, f figures) (err error) {
	for i := range sampledNodes {
		n, err := startNode(s, i)
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
	return measureSize(ctx, s, f)
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
