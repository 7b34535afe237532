package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/allocator"
)

// claims is how many are measured. The pool is half full in the middle of them.
const claims = 200

// half is a pool of single addresses: a pod that gets one has claimed a block.
var half = cluster.Pool{Name: "half", IPv4BlockBits: 32, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/20")}}

// measureClaims counts the calls of a node that claims one block after the other of a pool that is half full.
func measureClaims(ctx context.Context, b cluster.Backend, f figures) (err error) {
	pool, err := admin.NewPools(b).Put(ctx, half)
	if err != nil {
		return err
	}
	blocks := pool.Blocks(cluster.IPv4)
	if err := occupy(ctx, b, pool, blocks/2-claims/2); err != nil {
		return err
	}
	n, err := startNode(b, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop(ctx)) }()
	if err := n.fill(ctx, 0, 1); err != nil { // until it has begun
		return err
	}
	reads, creates, lists := n.store.reads.Load(), n.store.creates.Load(), n.store.lists.Load()
	for i := range claims {
		if _, err := n.source.Allocate(ctx, allocator.Request{Owner: handle(i + 1), Pool: half.Name}); err != nil {
			return err
		}
	}
	f["claim-creates"] = float64(n.store.creates.Load()-creates) / claims
	f["claim-reads"] = float64(n.store.reads.Load()-reads) / claims
	f["claim-lists"] = float64(n.store.lists.Load()-lists) / claims
	return nil
}

// occupy has another node own so many blocks of the pool, evenly over it.
func occupy(ctx context.Context, b cluster.Backend, pool cluster.Pool, n uint64) error {
	owner := cluster.NodeID{Name: "occupier", Key: cluster.NewKey()}
	if _, err := b.Nodes.Create(ctx, cluster.Node{ID: owner, State: cluster.NodeActive, Created: time.Now()}); err != nil {
		return err
	}
	for i := range n {
		one := cluster.Block{
			CIDR: pool.Block(cluster.IPv4, i*pool.Blocks(cluster.IPv4)/n), Pool: pool.Name, PoolUID: pool.UID, Owner: owner,
			Claim: fmt.Sprint("claim-", i), Created: time.Now(),
		}
		if err := b.Blocks.Create(ctx, one); err != nil {
			return err
		}
	}
	return nil
}
