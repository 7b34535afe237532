package multipool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

const (
	randomTries = 3                // blocks that are tried at random before the names of a pool's blocks are listed
	claimTries  = 64               // tries after a list, in which other nodes may be quicker
	maxScan     = 1 << 16          // blocks that are examined one after the other; in a larger pool claimRandom finds one
	listTime    = 10 * time.Minute // between two lists of the blocks of a pool that is full
)

// poolFamily is a family of a pool.
type poolFamily struct {
	pool   string
	family cluster.Family
}

// search is the last search for a block of a pool and family that were full.
type search struct {
	next   time.Duration // when to look again
	pause  time.Duration // 0 before the first search
	listed time.Duration // when its blocks were listed last
	others uint64        // how many of its blocks other nodes had then
}

// mayList reports whether it is time to list the claimed blocks.
func (s search) mayList(now time.Duration) bool { return s.pause == 0 || now-s.listed >= listTime }

// recent reports whether the search was not long ago.
func (s search) recent(now time.Duration) bool { return now < s.next+listTime }

// postpone makes the pause before the next search longer.
func (s *search) postpone(now, first time.Duration, random func(int64) int64) {
	s.pause = cmp.Or(s.pause, first)
	s.next = now + s.pause/2 + time.Duration(random(int64(s.pause)))
	s.pause = min(2*s.pause, max(maxSearchTime, first))
}

// claimFamilies claims a block of each family. It does not try while one of the families is known to be full.
func (c *claimer) claimFamilies(ctx context.Context, pool cluster.Pool, families []cluster.Family) error {
	for _, f := range families {
		if c.clock() < c.searches[poolFamily{pool.Name, f}].next {
			return c.errNoBlock(pool, f)
		}
	}
	for _, f := range families {
		if err := c.claimAny(ctx, pool, f); err != nil {
			return err
		}
	}
	return nil
}

// claimAny claims a free block of the pool: it tries a few at random, and then lists the claimed blocks.
func (c *claimer) claimAny(ctx context.Context, pool cluster.Pool, f cluster.Family) error {
	at := poolFamily{pool.Name, f}
	last := c.searches[at]
	err := c.claimRandom(ctx, pool, f)
	if errors.Is(err, ErrNoBlock) && last.mayList(c.clock()) {
		last.others, err = c.claimListed(ctx, pool, f)
		last.listed = c.clock()
	}
	if err == nil {
		delete(c.searches, at)
	}
	if !errors.Is(err, ErrNoBlock) {
		return err
	}
	last.postpone(c.clock(), c.cfg.SearchTime, c.rng.Int64N)
	c.searches[at] = last
	return c.errNoBlock(pool, f)
}

// errNoBlock is [ErrNoBlock] with the owners of the blocks of the pool, by the last list.
func (c *claimer) errNoBlock(pool cluster.Pool, f cluster.Family) error {
	total, others, own := pool.Blocks(f), c.searches[poolFamily{pool.Name, f}].others, uint64(0)
	for _, b := range c.checkpoint.Blocks {
		if b.State == blockOwned && isOf(pool, f, b.CIDR) {
			own++
		}
	}
	family := map[cluster.Family]string{cluster.IPv4: "IPv4", cluster.IPv6: "IPv6"}[f]
	text := fmt.Sprintf("%d of %d %s blocks are claimed by other nodes", others, total, family)
	larger := "make the pool larger with " + c.backend.Command("pool set")
	hint := larger + ", or see porin node list for nodes that are gone"
	if own > 0 {
		text += fmt.Sprintf(" and %d by this one", own)
	}
	if others+own < total {
		text += ", and no other one has an address to give out"
	}
	if others == 0 {
		hint = larger + ", or remove pods from this node"
	}
	return fault.WithHint(fmt.Errorf("pool %s has %w: %s", pool.Name, ErrNoBlock, text), hint)
}

// isOf reports whether the pool has the block now, and it is of the family.
func isOf(pool cluster.Pool, f cluster.Family, cidr netip.Prefix) bool {
	return cluster.FamilyOf(cidr.Addr()) == f && pool.HasBlock(cidr)
}

// claimRandom tries a few blocks at random.
func (c *claimer) claimRandom(ctx context.Context, pool cluster.Pool, f cluster.Family) error {
	blocks := pool.UsableBlocks(f)
	for range randomTries {
		cidr := blocks.At(c.rng.Uint64N(blocks.Len()))
		if !c.checkpoint.claimable(cidr) {
			continue
		}
		if err := c.claim(ctx, pool, cidr); !errors.Is(err, cluster.ErrExists) {
			return err
		}
	}
	return ErrNoBlock
}

// claimListed lists the claimed blocks and claims one of the others. It returns how many blocks other nodes have.
func (c *claimer) claimListed(ctx context.Context, pool cluster.Pool, f cluster.Family) (others uint64, err error) {
	registered := map[cluster.NodeID]bool{} // spares removeOrphan a read for each block
	for n, err := range c.backend.Nodes.All(ctx) {
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return 0, fmt.Errorf("list the nodes: %w", err)
		}
		registered[n.ID] = true
	}
	claimed := map[netip.Prefix]bool{}
	for b, err := range cluster.Readable(c.backend.Blocks.All(ctx, cluster.BlockFilter{Pool: pool.Name})) { // a create says if another is claimed
		if err != nil {
			return 0, fmt.Errorf("list the blocks of pool %s: %w", pool.Name, err)
		}
		if free, err := c.removeOrphan(ctx, b, registered); err != nil {
			return 0, err
		} else if !free {
			claimed[b.CIDR] = true
			if b.Owner != c.checkpoint.Node && isOf(pool, f, b.CIDR) {
				others++
			}
		}
	}
	blocks := pool.UsableBlocks(f)
	for range claimTries {
		cidr, ok := c.pick(blocks, claimed)
		if !ok {
			break
		}
		if err := c.claim(ctx, pool, cidr); !errors.Is(err, cluster.ErrExists) {
			return others, err
		}
		claimed[cidr] = true
		others++
	}
	return others, ErrNoBlock
}

// pick returns a block that no node has claimed, beginning at a random one.
func (c *claimer) pick(blocks cluster.BlockList, claimed map[netip.Prefix]bool) (netip.Prefix, bool) {
	n := blocks.Len()
	from := c.rng.Uint64N(n)
	for i := range min(n, maxScan) {
		cidr := blocks.At((from + i) % n)
		if !claimed[cidr] && c.checkpoint.claimable(cidr) {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}
