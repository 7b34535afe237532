package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// claimer finds and claims blocks for waiting allocations, and some of the default pool in advance. It deletes the
// claims of nodes that are gone.
type claimer struct {
	*common
	membership *membership
	reconciler *reconciler
	publish    func() // updates the [Status]

	searches map[poolFamily]search // of pools that were full
}

// serve claims what a waiter needs. promised counts the free addresses that others get who wait in the same round.
func (c *claimer) serve(ctx context.Context, w *waiter, promised map[poolFamily]int64) error {
	p, ok := c.pools.byName[w.pool]
	if !ok || !p.Claimable(c.pools.labels) { // the watch may be late
		now, err := c.backend.Pools.Get(ctx, w.pool)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil // the allocator says which pools there are
		}
		if err != nil {
			return err
		}
		p = now
		c.pools.byName[p.Name] = p
		c.addresses.configure(p)
	}
	if err := checkClaimable(p, c.pools.labels); err != nil {
		return err
	}
	for _, addr := range w.want {
		if err := c.claimAddress(ctx, p, addr); err != nil {
			return err
		}
	}
	var lacking []cluster.Family
	for _, f := range cluster.Families {
		if p.Blocks(f) > 0 && c.addresses.free(p.Name, f, netip.Prefix{}) <= promised[poolFamily{p.Name, f}] && !w.wants(f) {
			lacking = append(lacking, f)
		}
	}
	if err := c.claimFamilies(ctx, p, lacking); err != nil {
		return err
	}
	for _, f := range cluster.Families {
		promised[poolFamily{p.Name, f}]++
	}
	return nil
}

// keepDefaultPool claims a block of the default pool when a node with endpoints has too few free addresses of it. more
// reports whether another round must claim the next one: a waiter does not wait for all of them.
func (c *claimer) keepDefaultPool(ctx context.Context) (more bool, err error) {
	p, ok := c.pools.byName[DefaultPool]
	if !ok || !p.Claimable(c.pools.labels) || c.addresses.endpoints() == 0 {
		return false, nil
	}
	for _, f := range cluster.Families {
		if p.Blocks(f) == 0 || c.addresses.free(p.Name, f, netip.Prefix{}) >= int64(c.cfg.PreAllocate) {
			continue
		}
		err := c.claimFamilies(ctx, p, []cluster.Family{f})
		if err != nil && !errors.Is(err, ErrNoBlock) {
			return more, err
		}
		if err == nil && c.addresses.free(p.Name, f, netip.Prefix{}) < int64(c.cfg.PreAllocate) {
			more = true
		}
	}
	return more, nil
}

// claimAddress claims the block of a requested address.
func (c *claimer) claimAddress(ctx context.Context, pool cluster.Pool, addr netip.Addr) error {
	cidr, ok := pool.BlockOf(addr)
	if !ok {
		return nil // the allocator says so
	}
	if pool.Excluded(addr) {
		return fault.New(fault.Invalid, fmt.Sprintf("address %s of pool %s is excluded: nobody gets it", addr, pool.Name))
	}
	if own := c.checkpoint.block(cidr); own != nil && own.State == blockOwned {
		return nil
	} else if !c.checkpoint.claimable(cidr) {
		return fault.WithHint(fault.New(fault.Unavailable, fmt.Sprintf("address %s: block %s is not ready: %s", addr, cidr, own.State)), "see porin ipam check")
	}
	err := c.claim(ctx, pool, cidr)
	if !errors.Is(err, cluster.ErrExists) {
		return err
	}
	now, err := c.backend.Blocks.Get(ctx, cidr)
	if err != nil {
		return err
	}
	return fault.WithHint(fault.New(fault.Conflict, fmt.Sprintf("address %s is in block %s, which node %s has", addr, cidr, now.Owner.Name)),
		"ask for another address, or have the pod run on that node")
}

// claim creates the record of the block, verifies the claim, and gives out addresses of the block. A claim that cannot
// be verified is withdrawn.
func (c *claimer) claim(ctx context.Context, pool cluster.Pool, cidr netip.Prefix) error {
	b := OwnBlock{CIDR: cidr, Pool: pool.Name, PoolUID: pool.UID, Claim: rand.Text(), State: blockClaiming}
	var earlier OwnBlock
	undo := func() { c.checkpoint.remove(cidr) }
	if was := c.checkpoint.block(cidr); was != nil { // an earlier claim may yet arrive
		earlier = *was
		b.Checks, undo = earlier.Checks, func() { c.checkpoint.set(earlier) }
	}
	if err := c.checkpoint.put(b); err != nil {
		undo() // never sent
		return err
	}
	earlier.nextDeletion = 0 // in case the create finds the block claimed, perhaps by the earlier claim
	c.publish()              // the doctor compares it with the store
	err := c.backend.Blocks.Create(ctx, blockRecord(c.checkpoint.Node, b))
	switch {
	case err == nil:
		c.claims.WithLabelValues("claimed").Inc()
	case errors.Is(err, cluster.ErrExists):
		c.claims.WithLabelValues("exists").Inc()
		undo() // the end of the round saves it: a claim in this state is only ever deleted
		c.checkpoint.changed = true
		return err
	default: // it may have been made, or be made later
		c.claims.WithLabelValues("error").Inc()
		b.State, b.Checks = blockReleased, lateChecks
		return errors.Join(fmt.Errorf("claim block %s: %w", cidr, err), c.checkpoint.put(b))
	}
	if err := c.verify(ctx, b); err != nil {
		b.State = blockReleased
		return errors.Join(fmt.Errorf("withdraw the claim of block %s: %w", cidr, err), c.checkpoint.put(b))
	}
	b.State = blockOwned
	if err := c.checkpoint.put(b); err != nil { // the next agent would not know that it is owned
		b.State = blockReleased
		c.checkpoint.set(b)
		return fmt.Errorf("withdraw the claim of block %s: %w", cidr, err)
	}
	c.log.Info("block claimed", "pool", pool.Name, "cidr", cidr)
	return c.addresses.Add(pool.Name, cidr)
}

// verify reads the pool of the block again after a create, and then what [membership.verify] reads. It returns why the
// claim must be withdrawn.
func (c *claimer) verify(ctx context.Context, b OwnBlock) error {
	pool, err := c.backend.Pools.Get(ctx, b.Pool)
	if err != nil {
		return err
	}
	c.pools.byName[pool.Name] = pool
	c.addresses.configure(pool) // an address that is excluded by now is not given out
	if pool.UID != b.PoolUID || !pool.Claimable(c.pools.labels) || !pool.HasBlock(b.CIDR) || !pool.Usable(b.CIDR) {
		return fault.New(fault.Unavailable, fmt.Sprintf("pool %s has changed", pool.Name))
	}
	return c.membership.verify(ctx)
}

// removeOrphan deletes a block whose owner was deleted, and one in this node's own name that it does not know, as of a
// claim that arrived late. No other node does the latter. registered has the nodes with a record. free reports whether
// the block can be claimed.
func (c *claimer) removeOrphan(ctx context.Context, b cluster.Block, registered map[cluster.NodeID]bool) (free bool, err error) {
	switch {
	case b.Owner == c.checkpoint.Node:
		if c.checkpoint.explains(b) {
			return false, nil
		}
		return c.addresses.used(b.Pool, b.CIDR) == 0, c.reconciler.resolveUnknownBlock(ctx, b)
	case registered[b.Owner], c.backend.AgentRights: // an agent may not delete another node's block: porin node gc does
		return false, nil
	default:
		if deleted, err := cluster.NodeDeleted(ctx, c.backend, b.Owner); err != nil || !deleted {
			return false, err
		}
		if err := c.membership.verify(ctx); err != nil { // the record may be missing because the store was rolled back
			return false, err
		}
	}
	if err := c.backend.Blocks.Delete(ctx, b.CIDR, b.Claim); err != nil {
		return false, fmt.Errorf("delete block %s, whose node is gone: %w", b.CIDR, err)
	}
	c.log.Info("a block whose node is gone is free again", "cidr", b.CIDR, "node", b.Owner.String())
	return true, nil
}

// The errors that callers tell apart.
var (
	// ErrContested is returned when another machine has the key of this node.
	ErrContested = fault.WithHint(fault.New(fault.Conflict, "another machine has this node's key"), "") // the errors that wrap it say what to do
	// ErrRecovery is returned during a recovery, in which no node claims blocks.
	ErrRecovery = fault.WithHint(fault.New(fault.Unavailable, "a recovery of the cluster's store is under way: no node claims a block before an administrator ends it"),
		"see porin ipam recover; --end ends it when every node has written its blocks")
	// ErrReleasing is returned while an administrator deletes the node.
	ErrReleasing = fault.WithHint(fault.New(fault.Unavailable, "an administrator deletes this node"), "see porin node list")
	// ErrNodeDeleted is returned while the Kubernetes Node of this node is deleted.
	ErrNodeDeleted = fault.WithHint(fault.New(fault.Unavailable, "the Kubernetes Node of this node was deleted"),
		"restart the kubelet, which creates the Node again, or end the agent")
	// ErrNoBlock is returned when nodes have claimed every block of a pool.
	ErrNoBlock = fault.New(fault.Exhausted, "no free block")
)

// checkClaimable says why a node with these labels gets no block of the pool, or nil.
func checkClaimable(p cluster.Pool, labels map[string]string) error {
	switch {
	case p.Claimable(labels):
		return nil
	case p.Disabled:
		return fault.WithHint(fault.New(fault.Invalid, fmt.Sprintf("pool %s is disabled", p.Name)),
			"enable the pool, or have the pod use another one")
	case p.State != cluster.PoolAccepted || p.Deleting:
		return fault.WithHint(fault.New(fault.Unavailable, fmt.Sprintf("pool %s is %s", p.Name, p.State)), "see porin pool get")
	}
	var wanted []string
	for _, key := range slices.Sorted(maps.Keys(p.NodeSelector)) {
		wanted = append(wanted, key+"="+p.NodeSelector[key])
	}
	return fault.WithHint(fault.New(fault.Invalid, fmt.Sprintf("pool %s is not for this node: it is for nodes with %s", p.Name, strings.Join(wanted, ","))),
		"give the node that label with kubectl label, or without Kubernetes with --node-labels of its agent, or have the pod use another pool")
}
