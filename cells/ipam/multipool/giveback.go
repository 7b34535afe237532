package multipool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
)

// giveBackIdle gives back blocks of which nothing has been in use for a while and that the node does not need.
func (c *Controller) giveBackIdle(ctx context.Context) error {
	var errs []error
	seen := map[netip.Prefix]bool{}
	c.resting = false
	for _, b := range slices.Clone(c.checkpoint.Blocks) {
		if b.State != blockOwned && !b.State.inUseOnly() {
			continue
		}
		seen[b.CIDR] = true
		if c.addresses.used(b.Pool, b.CIDR) > 0 || b.State == blockOwned && c.needs(b) {
			c.resting = c.resting || c.onlyResting(b)
			c.idle.end(b.CIDR)
			continue
		}
		idle := c.idle.begin(b.CIDR)
		if b.State.inUseOnly() {
			errs = append(errs, c.dropBlock(b)) // another node's
			c.self.connected = false            // confirm in a recovery
			continue
		}
		if idle >= c.idle.time(b.Pool) || c.obsolete(b) {
			errs = append(errs, c.release(b.Pool, b.CIDR))
			c.idle.givenBack(b.Pool)
		}
	}
	c.idle.keep(seen)
	return errors.Join(append(errs, c.settle(ctx))...)
}

// onlyResting reports whether nothing but the quarantine of addresses keeps the block. Nobody tells when that ends.
func (c *Controller) onlyResting(b ownBlock) bool {
	return slices.ContainsFunc(c.addresses.Blocks(b.Pool), func(u allocator.Block) bool { return u.Prefix == b.CIDR && u.Used == 0 && u.Resting > 0 })
}

// needs reports whether an empty block is kept: the default pool of a node with endpoints has some addresses ahead.
func (c *Controller) needs(b ownBlock) bool {
	if b.Pool != DefaultPool || c.obsolete(b) || c.addresses.endpoints() == 0 {
		return false
	}
	return c.addresses.free(b.Pool, cluster.FamilyOf(b.CIDR.Addr()), b.CIDR) < int64(c.cfg.PreAllocate)
}

// obsolete reports whether the pool as it is now does not have the block, or this node may have none of it.
func (c *Controller) obsolete(b ownBlock) bool { return c.pools.lack(b, c.cfg.Labels) }

// release ends that a block is given out from, and has it deleted in the store. It is a success when something is in use by now.
func (c *Controller) release(pool string, cidr netip.Prefix) error {
	if err := c.addresses.Remove(pool, cidr); err != nil {
		return nil //nolint:nilerr // kept
	}
	c.idle.end(cidr)
	b := c.checkpoint.block(cidr)
	if b == nil {
		return nil
	}
	was := b.State
	b.State = blockReleased
	if err := c.save(); err != nil { // the next agent would give out from it
		b.State = was
		return errors.Join(err, c.addresses.Add(pool, cidr))
	}
	c.log.Info("block given back", "pool", pool, "cidr", cidr)
	return nil
}

// lateChecks is how often the deletion of a claim is repeated whose creation had no answer: after 7.5 s, 30 s, 2 min and 8 min with the
// default idle time. The creation may arrive that late.
const lateChecks = 4

// settle deletes what was released from the store.
func (c *Controller) settle(ctx context.Context) error {
	for _, b := range slices.Clone(c.checkpoint.Blocks) {
		if b.State != blockReleased || c.clock() < c.deletions[b.CIDR] {
			continue
		}
		if c.unsaved { // what the disk does not say must not be deleted
			if err := c.save(); err != nil {
				return err
			}
		}
		err := c.backend.Blocks.Delete(ctx, b.CIDR, b.Claim)
		if err != nil && !errors.Is(err, cluster.ErrConflict) { // which says that the claim is over
			return fmt.Errorf("give back block %s: %w", b.CIDR, err)
		}
		c.dirty = true
		if b.Checks > 0 {
			pause := c.cfg.IdleTime / 8 << (2 * (lateChecks - b.Checks))
			b.Checks--
			c.checkpoint.set(b)
			c.deletions[b.CIDR] = c.clock() + pause
			continue
		}
		c.checkpoint.drop(b.CIDR)
		delete(c.deletions, b.CIDR)
	}
	return nil
}
