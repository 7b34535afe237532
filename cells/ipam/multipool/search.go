package multipool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// searcher finds free blocks of a pool and claims them: a few tries at random, then a list of all claimed blocks.
type searcher struct {
	store      cluster.Blocks
	checkpoint *checkpoint
	blocks     *ownBlocks
	nodes      cluster.Nodes
	claimer    *claimer
	warnings   *warnings
	meters     *meters
	rng        *rand.Rand

	searches searches
}

// claimFamilies claims a block of each family, or none. It does not try while one of the families is known to be full.
func (s *searcher) claimFamilies(ctx context.Context, pool cluster.Pool, families []cluster.Family) error {
	for _, f := range families {
		if !s.searches.mayBegin(poolFamily{pool.Name, f}) {
			return s.errNoBlock(pool, f)
		}
	}
	var claimed []netip.Prefix
	for _, f := range families {
		cidr, err := s.claimAny(ctx, pool, f)
		if err != nil {
			for _, other := range claimed {
				s.warnings.note(s.blocks.release(pool.Name, other), "a block of one family could not be given back, although the other family has none")
			}
			return err
		}
		claimed = append(claimed, cidr)
	}
	return nil
}

// claimAny claims a free block of the pool.
func (s *searcher) claimAny(ctx context.Context, pool cluster.Pool, f cluster.Family) (netip.Prefix, error) {
	at := poolFamily{pool.Name, f}
	cidr, err := s.claimRandom(ctx, pool, f)
	if errors.Is(err, ErrNoBlock) && s.searches.mayList(at) {
		cidr, err = s.claimListed(ctx, pool, f)
	}
	switch {
	case err == nil:
		s.searches.forget(at)
	case errors.Is(err, ErrNoBlock):
		s.searches.noteFailure(at)
		err = s.errNoBlock(pool, f)
	}
	return cidr, err
}

// errNoBlock is [ErrNoBlock] with who owns the blocks of the pool, by the last list.
func (s *searcher) errNoBlock(pool cluster.Pool, f cluster.Family) error {
	total, others, own := pool.Blocks(f), s.searches.full[poolFamily{pool.Name, f}].others, s.blocks.count(pool, f)
	family := map[cluster.Family]string{cluster.IPv4: "IPv4", cluster.IPv6: "IPv6"}[f]
	text, hint := fmt.Sprintf("%d of %d %s blocks are claimed by other nodes", others, total, family), hintNoBlock
	if own > 0 {
		text += fmt.Sprintf(" and %d by this one", own)
	}
	if others+own < total {
		text += ", and no other one has an address to give out"
	}
	if others == 0 {
		hint = hintNoBlockAlone
	}
	return fault.WithHint(fmt.Errorf("pool %s has %w: %s", pool.Name, ErrNoBlock, text), hint)
}

// isOf reports whether the pool has the block now, and it is of the family.
func isOf(pool cluster.Pool, f cluster.Family, cidr netip.Prefix) bool {
	return cluster.FamilyOf(cidr.Addr()) == f && pool.HasBlock(cidr)
}

// randomTries is how many blocks are tried at random before the names of a pool's blocks are listed.
const randomTries = 3

// claimRandom tries a few blocks at random.
func (s *searcher) claimRandom(ctx context.Context, pool cluster.Pool, f cluster.Family) (netip.Prefix, error) {
	blocks := pool.UsableBlocks(f)
	for range randomTries {
		cidr := blocks.At(s.rng.Uint64N(blocks.Len()))
		if !s.checkpoint.claimable(cidr) {
			continue
		}
		if err := s.claimer.claim(ctx, pool, cidr); !errors.Is(err, cluster.ErrExists) {
			return cidr, err
		}
	}
	return netip.Prefix{}, ErrNoBlock
}

// claimListed lists the claimed blocks and claims one of the others.
func (s *searcher) claimListed(ctx context.Context, pool cluster.Pool, f cluster.Family) (netip.Prefix, error) {
	registered := map[cluster.NodeID]bool{} // spares removeOrphan a read for each block
	for n, err := range s.nodes.All(ctx) {
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return netip.Prefix{}, fmt.Errorf("list the nodes: %w", err)
		}
		registered[n.ID] = true
	}
	claimed, others := map[netip.Prefix]bool{}, uint64(0)
	for b, err := range s.store.All(ctx, cluster.BlockFilter{Pool: pool.Name}) {
		if errors.Is(err, cluster.ErrUnreadable) {
			continue // it is claimed: a create says so
		}
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("list the blocks of pool %s: %w", pool.Name, err)
		}
		if free, err := s.claimer.removeOrphan(ctx, b, registered); err != nil {
			return netip.Prefix{}, err
		} else if !free {
			claimed[b.CIDR] = true
			if b.Owner != s.checkpoint.Node && isOf(pool, f, b.CIDR) {
				others++
			}
		}
	}
	blocks := pool.UsableBlocks(f)
	for tries := 0; tries < claimTries; tries++ {
		cidr, ok := s.pick(blocks, claimed)
		if !ok {
			break
		}
		if err := s.claimer.claim(ctx, pool, cidr); !errors.Is(err, cluster.ErrExists) {
			return cidr, err
		}
		claimed[cidr] = true
		others++
	}
	s.searches.noteList(poolFamily{pool.Name, f}, others)
	return netip.Prefix{}, ErrNoBlock
}

// claimTries bounds how often this node tries again because another one was quicker.
const claimTries = 64

// maxScan bounds how many blocks of a pool are examined one after the other. In a larger pool claimRandom finds one.
const maxScan = 1 << 16

// pick returns a block that nobody has claimed, beginning at a random one.
func (s *searcher) pick(blocks cluster.BlockList, claimed map[netip.Prefix]bool) (netip.Prefix, bool) {
	n := blocks.Len()
	from := s.rng.Uint64N(n)
	for i := range min(n, maxScan) {
		cidr := blocks.At((from + i) % n)
		if !claimed[cidr] && s.checkpoint.claimable(cidr) {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// listTime is the time between two lists of the blocks of a pool that is full.
const listTime = 10 * time.Minute

// poolFamily is a family of a pool.
type poolFamily struct {
	pool   string
	family cluster.Family
}

// searches knows which pools were full, and when to look for a free block again.
type searches struct {
	clock func() time.Duration
	rng   *rand.Rand
	first time.Duration // first pause
	full  map[poolFamily]search
}

// search is the last search for a block of a pool and family that were full.
type search struct {
	next   time.Duration // when to look again
	pause  time.Duration
	listed time.Duration // when its blocks were listed last
	others uint64        // how many of its blocks other nodes had then
}

// mayBegin reports whether it is time to look for a free block.
func (s *searches) mayBegin(at poolFamily) bool { return s.clock() >= s.full[at].next }

// mayList reports whether it is time to list the claimed blocks.
func (s *searches) mayList(at poolFamily) bool {
	one, ok := s.full[at]
	return !ok || s.clock()-one.listed >= listTime
}

// noteList notes that a list had no free block, and how many blocks other nodes had.
func (s *searches) noteList(at poolFamily, others uint64) {
	one, ok := s.full[at]
	if !ok {
		one.pause = s.first
	}
	one.listed, one.others = s.clock(), others
	s.full[at] = one
}

// noteFailure notes that no block was free, and makes the pause longer.
func (s *searches) noteFailure(at poolFamily) {
	one := s.full[at]
	one.next = s.clock() + one.pause/2 + time.Duration(s.rng.Int64N(int64(one.pause)))
	one.pause = min(2*one.pause, max(maxSearchTime, s.first))
	s.full[at] = one
}

// forget forgets that a pool was full.
func (s *searches) forget(at poolFamily) { delete(s.full, at) }

// recentlyFull returns the pools that were full at the last search, if that is not long ago.
func (s *searches) recentlyFull() map[poolFamily]bool {
	full := map[poolFamily]bool{}
	for at, one := range s.full {
		if s.clock() < one.next+listTime {
			full[at] = true
		}
	}
	return full
}
