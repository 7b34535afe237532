package multipool

import (
	"context"
	"errors"
	"net/netip"

	"porin.dev/porin/cells/cluster"
)

// configure has the allocator give out from the pools as they are now.
func (c *Controller) configure() {
	if !c.pools.complete {
		return
	}
	for _, p := range c.pools.names {
		c.addresses.configure(p)
	}
	for _, name := range c.addresses.Requested() {
		if _, ok := c.pools.names[name]; !ok {
			c.addresses.Forget(name)
		}
	}
}

// restorePools creates, in a recovery, the pools of this node's blocks that the store has lost, as they were.
func (c *Controller) restorePools(ctx context.Context) error {
	if c.self.info.Recovery == nil {
		return nil
	}
	for _, p := range c.checkpoint.Pools {
		if _, ok := c.pools.names[p.Name]; ok {
			continue
		}
		restored, err := NewPoolAdmin(c.backend).restore(ctx, p)
		if errors.Is(err, ErrChanged) {
			restored, err = c.backend.Pools.Get(ctx, p.Name) // another node was quicker
		}
		if err != nil {
			return err
		}
		if restored.State != cluster.PoolPending {
			c.log.Warn("a pool that the store had lost was created again", "pool", p.Name)
			c.pools.names[p.Name] = restored
		}
	}
	return nil
}

// createDefaultPool creates the pool of the configuration, once: from then on it is the cluster's.
func (c *Controller) createDefaultPool(ctx context.Context) error {
	prefixes, err := c.cfg.defaultPrefixes()
	if p, ok := c.pools.names[DefaultPool]; ok && p.State != cluster.PoolPending || !c.pools.complete || len(prefixes) == 0 || err != nil {
		return err
	}
	p, err := NewPoolAdmin(c.backend).create(ctx, cluster.Pool{Name: DefaultPool, Prefixes: prefixes, Quarantine: cluster.DefaultQuarantine})
	if errors.Is(err, ErrChanged) { // somebody else was quicker, and may have been interrupted
		if p, err = c.backend.Pools.Get(ctx, DefaultPool); err == nil && p.State == cluster.PoolPending {
			p, err = NewPoolAdmin(c.backend).resume(ctx, p)
		}
		if err != nil || p.State != cluster.PoolAccepted {
			return err
		}
	}
	if err == nil {
		c.pools.names[p.Name] = p
		c.configure()
	}
	return err
}

// reviewBlocks gives out from the node's blocks by what holds of their pools now.
func (c *Controller) reviewBlocks() {
	for _, b := range c.checkpoint.Blocks {
		if b.State == blockOwned {
			c.giveOut(b)
		}
	}
}

// giveOut has an own block given out from, unless its pool does not have it any more: then it is given back when it is empty.
func (c *Controller) giveOut(b ownBlock) {
	if c.obsolete(b) {
		c.addresses.Drain(b.Pool, b.CIDR)
	} else if err := c.addresses.Add(b.Pool, b.CIDR); err != nil {
		c.warn(err, "a block of this node cannot be given out from")
	}
}

// holdDefaultPool claims what a node with endpoints keeps ahead of the default pool. Blocks of other pools are claimed for who waits for
// an address.
func (c *Controller) holdDefaultPool(ctx context.Context) error {
	p, ok := c.pools.names[DefaultPool]
	if !ok || !p.Claimable(c.cfg.Labels) || c.addresses.endpoints() == 0 {
		return nil
	}
	for _, f := range cluster.Families {
		if p.Blocks(f) == 0 || c.addresses.free(p.Name, f, netip.Prefix{}) >= int64(c.cfg.PreAllocate) {
			continue
		}
		err := c.claimFamilies(ctx, p, []cluster.Family{f})
		if err != nil && !errors.Is(err, ErrNoBlock) {
			return err
		}
		if err == nil && c.addresses.free(p.Name, f, netip.Prefix{}) < int64(c.cfg.PreAllocate) {
			c.Kick() // a block a round, so that nobody waits for all of them
		}
	}
	return nil
}

// serve claims what somebody waits for.
func (c *Controller) serve(ctx context.Context, w *waiter) error {
	if w.compare {
		return nil
	}
	p, ok := c.pools.names[w.pool]
	if !ok || !p.Claimable(c.cfg.Labels) { // the watch may be late
		now, err := c.backend.Pools.Get(ctx, w.pool)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil // the allocator says which pools there are
		}
		if err != nil {
			return err
		}
		p = now
		c.pools.names[p.Name] = p
		c.addresses.configure(p)
	}
	if err := refusal(p, c.cfg.Labels); err != nil {
		return err
	}
	c.idle.needed(p.Name)
	for _, addr := range w.want {
		if err := c.claimAddress(ctx, p, addr); err != nil {
			return err
		}
	}
	var lacking []cluster.Family
	for _, f := range cluster.Families {
		if p.Blocks(f) > 0 && c.addresses.free(p.Name, f, netip.Prefix{}) == 0 && !w.wants(f) {
			lacking = append(lacking, f)
		}
	}
	return c.claimFamilies(ctx, p, lacking)
}
