package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// randomTries is how many blocks are tried at random before the names of a pool's blocks are listed.
const randomTries = 3

// claimFamilies claims a block of each family, or none.
func (c *Controller) claimFamilies(ctx context.Context, pool cluster.Pool, families []cluster.Family) error {
	var claimed []netip.Prefix
	for _, f := range families {
		cidr, err := c.claimAny(ctx, pool, f)
		if err != nil {
			for _, other := range claimed {
				c.warn(c.release(pool.Name, other), "a block is kept that is of no use alone")
			}
			return err
		}
		claimed = append(claimed, cidr)
	}
	return nil
}

// claimAny claims a free block of the pool.
func (c *Controller) claimAny(ctx context.Context, pool cluster.Pool, f cluster.Family) (netip.Prefix, error) {
	at := poolFamily{pool.Name, f}
	if !c.searches.due(at) {
		return netip.Prefix{}, errNoBlockOf(pool, f)
	}
	cidr, err := c.claimRandom(ctx, pool, f)
	list := errors.Is(err, ErrNoBlock) && c.searches.mayList(at)
	if list {
		cidr, err = c.claimListed(ctx, pool, f)
	}
	switch {
	case err == nil:
		c.searches.succeeded(at)
	case errors.Is(err, ErrNoBlock):
		c.searches.failed(at, list)
	}
	return cidr, err
}

func errNoBlockOf(pool cluster.Pool, f cluster.Family) error {
	return fmt.Errorf("pool %s has %d %s blocks: %w", pool.Name, pool.Blocks(f), f, ErrNoBlock)
}

// claimRandom tries a few blocks.
func (c *Controller) claimRandom(ctx context.Context, pool cluster.Pool, f cluster.Family) (netip.Prefix, error) {
	for range randomTries {
		cidr := pool.Block(f, c.rng.Uint64N(pool.Blocks(f)))
		if !pool.Usable(cidr) || c.checkpoint.block(cidr) != nil {
			continue
		}
		if err := c.claim(ctx, pool, cidr); !errors.Is(err, cluster.ErrExists) {
			return cidr, err
		}
	}
	return netip.Prefix{}, errNoBlockOf(pool, f)
}

// claimListed lists the claimed blocks and claims one of the others.
func (c *Controller) claimListed(ctx context.Context, pool cluster.Pool, f cluster.Family) (netip.Prefix, error) {
	if !c.nodes.complete { // else the owner of each block would be read
		if err := c.listNodes(ctx); err != nil {
			return netip.Prefix{}, err
		}
	}
	claimed := map[netip.Prefix]bool{}
	for b, err := range c.backend.Blocks.All(ctx, cluster.BlockFilter{Pool: pool.Name}) {
		if errors.Is(err, cluster.ErrUnreadable) {
			continue // a create finds that it is taken
		}
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("list the blocks of pool %s: %w", pool.Name, err)
		}
		if free, err := c.removeOrphan(ctx, b); err != nil {
			return netip.Prefix{}, err
		} else if !free {
			claimed[b.CIDR] = true
		}
	}
	c.meters.lists.Inc()
	for tries := 0; tries < claimTries; tries++ {
		cidr, ok := c.pick(pool, f, claimed)
		if !ok {
			break
		}
		if err := c.claim(ctx, pool, cidr); !errors.Is(err, cluster.ErrExists) {
			return cidr, err
		}
		claimed[cidr] = true
	}
	return netip.Prefix{}, errNoBlockOf(pool, f)
}

// claimTries bounds how often other nodes are quicker than this one.
const claimTries = 64

// maxScan bounds how many blocks of a pool are looked at in their order. In a larger pool some are free at random.
const maxScan = 1 << 16

// pick returns a block that is not claimed.
func (c *Controller) pick(pool cluster.Pool, f cluster.Family, claimed map[netip.Prefix]bool) (netip.Prefix, bool) {
	n := pool.Blocks(f)
	from := c.rng.Uint64N(n)
	for i := range min(n, maxScan) {
		cidr := pool.Block(f, (from+i)%n)
		if !claimed[cidr] && c.checkpoint.block(cidr) == nil && pool.Usable(cidr) {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// removeOrphan deletes a block whose owner's record is gone, and one in this node's own name that it does not know: of a creation that
// came late. Nobody else does that for it.
func (c *Controller) removeOrphan(ctx context.Context, b cluster.Block) (free bool, err error) {
	switch {
	case b.Owner == c.checkpoint.Node:
		if c.checkpoint.explains(b) {
			return false, nil
		}
		return c.addresses.used(b.Pool, b.CIDR) == 0, c.endUnknownBlock(ctx, b)
	case c.nodes.has(b.Owner):
		return false, nil
	default:
		if _, err := c.backend.Nodes.Get(ctx, b.Owner); !errors.Is(err, cluster.ErrNotFound) {
			return false, err
		}
		if r, _, err := c.backend.Info.Get(ctx); err != nil || !slices.Contains(r.Removed, b.Owner.Key) {
			return false, err // nobody has deleted it
		}
		if err := c.mayClaim(ctx, nil); err != nil { // the record may be missing because the store has gone back
			return false, err
		}
	}
	if err := c.backend.Blocks.Delete(ctx, b.CIDR, b.Claim); err != nil {
		return false, fmt.Errorf("delete block %s, whose node is gone: %w", b.CIDR, err)
	}
	c.log.Info("a block whose node is gone is free again", "cidr", b.CIDR, "node", b.Owner.String())
	return true, nil
}

// claim creates the record of the block and gives out from it, if what was read for it holds afterwards as well.
func (c *Controller) claim(ctx context.Context, pool cluster.Pool, cidr netip.Prefix) error {
	b := ownBlock{CIDR: cidr, Pool: pool.Name, PoolUID: pool.UID, Claim: rand.Text(), State: blockClaiming}
	c.checkpoint.set(b)
	if err := c.save(); err != nil {
		c.checkpoint.drop(cidr) // never sent
		return err
	}
	c.publish() // for who compares the store with what the node knows
	err := c.backend.Blocks.Create(ctx, c.record(b))
	c.meters.claim(err)
	switch {
	case errors.Is(err, cluster.ErrExists):
		c.checkpoint.drop(cidr) // the next save is soon enough: a claim in this state is only ever deleted
		c.dirty = true
		return err
	case err != nil: // it may have been made, or be made later
		b.State, b.Checks = blockReleased, lateChecks
		c.checkpoint.set(b)
		return errors.Join(fmt.Errorf("claim block %s: %w", cidr, err), c.save())
	}
	if err := c.mayClaim(ctx, &b); err != nil {
		b.State = blockReleased
		c.checkpoint.set(b)
		return errors.Join(fmt.Errorf("withdraw the claim of block %s: %w", cidr, err), c.save())
	}
	b.State = blockOwned
	c.checkpoint.set(b)
	if err := c.save(); err != nil { // the next agent would not know that it is owned
		b.State = blockReleased
		c.checkpoint.set(b)
		return fmt.Errorf("withdraw the claim of block %s: %w", cidr, err)
	}
	c.log.Info("block claimed", "pool", pool.Name, "cidr", cidr)
	return c.addresses.Add(pool.Name, cidr)
}

// mayClaim reads the pool of the block, the node's own record and the record of the cluster. It returns why a claim of this node is not
// to stay.
func (c *Controller) mayClaim(ctx context.Context, b *ownBlock) error {
	if b != nil {
		pool, err := c.backend.Pools.Get(ctx, b.Pool)
		if err != nil {
			return err
		}
		c.pools.names[pool.Name] = pool
		c.addresses.configure(pool) // what is excluded by now is not given out
		if pool.UID != b.PoolUID || !pool.Claimable(c.cfg.Labels) || !pool.HasBlock(b.CIDR) || !pool.Usable(b.CIDR) {
			return fault.New(fault.Unavailable, fmt.Sprintf("pool %s has changed", pool.Name))
		}
	}
	n, err := c.backend.Nodes.Get(ctx, c.checkpoint.Node)
	if err != nil {
		c.self.connected = false
		return err
	}
	if n.State != cluster.NodeActive || n.Deleting {
		c.self.connected = false
		return ErrReleasing
	}
	s, err := c.backend.Sessions.Get(ctx, c.checkpoint.Node)
	if err != nil || s.ID != c.self.session.ID {
		c.self.connected = false
		return errors.Join(err, fault.New(fault.Unavailable, "another session has this node's name"))
	}
	r, position, err := c.backend.Info.Get(ctx)
	if err != nil {
		c.self.connected = false
		return err
	}
	if r.Recovery != nil || r.ID != c.checkpoint.Cluster || r.Epoch != c.checkpoint.Epoch || c.wentBack(r, position) {
		c.self.connected = false
		return ErrRecovery
	}
	c.checkpoint.Position, c.dirty = position, true
	return nil
}

// claimAddress claims the block that a requested address is in.
func (c *Controller) claimAddress(ctx context.Context, pool cluster.Pool, addr netip.Addr) error {
	cidr, ok := pool.BlockOf(addr)
	if !ok {
		return nil // the allocator says so
	}
	if pool.Excluded(addr) {
		return fault.New(fault.Invalid, fmt.Sprintf("address %s of pool %s is excluded: nobody gets it", addr, pool.Name))
	}
	if own := c.checkpoint.block(cidr); own != nil {
		if own.State == blockOwned {
			return nil
		}
		return fault.New(fault.Unavailable, fmt.Sprintf("address %s: block %s is not ready: %s", addr, cidr, own.State))
	}
	err := c.claim(ctx, pool, cidr)
	if !errors.Is(err, cluster.ErrExists) {
		return err
	}
	now, err := c.backend.Blocks.Get(ctx, cidr)
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, fmt.Sprintf("address %s is in block %s, which node %s has", addr, cidr, now.Owner.Name))
}
