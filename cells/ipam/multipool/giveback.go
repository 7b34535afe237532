package multipool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
)

// releaser gives back blocks that nobody uses, and deletes in the store what was released.
type releaser struct {
	cfg        Config
	store      cluster.Blocks
	checkpoint *checkpoint
	blocks     *ownBlocks
	clock      func() time.Duration

	idle *idleBlocks
	// resting is true when only the quarantine of its addresses keeps a block.
	resting bool
}

// giveBackIdle gives back blocks of which nothing has been in use for a while and that the node does not need.
func (r *releaser) giveBackIdle(ctx context.Context) error {
	var errs []error
	seen := map[netip.Prefix]bool{}
	r.resting = false
	for _, b := range slices.Clone(r.checkpoint.Blocks) {
		if b.State != blockOwned && !b.State.notOwned() {
			continue
		}
		seen[b.CIDR] = true
		if r.blocks.used(b) || b.State == blockOwned && r.needs(b) {
			r.resting = r.resting || r.onlyResting(b)
			r.idle.noteUsed(b.CIDR)
			continue
		}
		idle := r.idle.noteIdle(b.CIDR)
		if b.State.notOwned() {
			errs = append(errs, r.blocks.forget(b))
			continue
		}
		if idle >= r.idle.minIdleTime(b.Pool) || r.blocks.pools.obsolete(b) {
			errs = append(errs, r.blocks.release(b.Pool, b.CIDR))
			r.idle.noteUsed(b.CIDR)
			r.idle.noteGivenBack(b.Pool)
		}
	}
	r.idle.forgetAllBut(seen)
	return errors.Join(append(errs, r.deleteReleased(ctx))...)
}

// onlyResting reports whether nothing but the quarantine of addresses keeps the block. Its end is no event, so the next
// round comes soon.
func (r *releaser) onlyResting(b ownBlock) bool {
	return slices.ContainsFunc(r.blocks.addresses.Blocks(b.Pool), func(u allocator.Block) bool { return u.Prefix == b.CIDR && u.Used == 0 && u.Resting > 0 })
}

// needs reports whether the node keeps an empty block: a node with endpoints keeps Config.PreAllocate free addresses of
// the default pool.
func (r *releaser) needs(b ownBlock) bool {
	if b.Pool != DefaultPool || r.blocks.pools.obsolete(b) || r.blocks.addresses.endpoints() == 0 {
		return false
	}
	return r.blocks.addresses.free(b.Pool, cluster.FamilyOf(b.CIDR.Addr()), b.CIDR) < int64(r.cfg.PreAllocate)
}

// lateChecks is how often the deletion of a claim without an answer is repeated, as the claim may arrive late: after
// 7.5 s, 30 s, 2 min and 8 min with the default idle time.
const lateChecks = 4

// deleteReleased deletes the released blocks in the store.
func (r *releaser) deleteReleased(ctx context.Context) error {
	for _, b := range slices.Clone(r.checkpoint.Blocks) {
		if b.State != blockReleased || r.clock() < b.nextDeletion {
			continue
		}
		if r.checkpoint.unsaved { // the disk must say so before
			if err := r.checkpoint.save(); err != nil {
				return err
			}
		}
		err := r.store.Delete(ctx, b.CIDR, b.Claim)
		if errors.Is(err, cluster.ErrConflict) { // the claim is over
			err = nil
			if b.Checks > 0 {
				err = r.deleteEarlierClaim(ctx, b)
			}
		}
		if err != nil {
			return fmt.Errorf("give back block %s: %w", b.CIDR, err)
		}
		r.checkpoint.changed = true
		if b.Checks > 0 {
			pause := r.cfg.IdleTime / 8 << (2 * (lateChecks - b.Checks))
			b.Checks--
			b.nextDeletion = r.clock() + pause
			r.checkpoint.set(b)
			continue
		}
		r.checkpoint.drop(b.CIDR)
	}
	return nil
}

// deleteEarlierClaim deletes a claim of this node that arrived after the block was claimed again.
func (r *releaser) deleteEarlierClaim(ctx context.Context, b ownBlock) error {
	now, err := r.store.Get(ctx, b.CIDR)
	if err == nil && now.Owner == r.checkpoint.Node {
		err = r.store.Delete(ctx, now.CIDR, now.Claim)
	}
	if errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrUnreadable) {
		return nil
	}
	return err
}

// untilNext returns the time until the next block may be given back or deleted in the store, at most the given one.
func (r *releaser) untilNext(most time.Duration) time.Duration {
	most = r.idle.untilNext(most)
	if r.resting {
		most = min(most, r.cfg.Interval/10)
	}
	now := r.clock()
	for _, b := range r.checkpoint.Blocks {
		if b.State == blockReleased && b.nextDeletion > 0 {
			most = min(most, max(b.nextDeletion-now, 0))
		}
	}
	return most
}

// idleBlocks knows since when nothing of a block has been in use, and how long it must be idle before it is given back.
type idleBlocks struct {
	clock func() time.Duration
	least time.Duration                  // shortest idle time
	since map[netip.Prefix]time.Duration // when a block became idle
	times map[string]idleTime            // by pool
}

// idleTime is how long blocks of a pool must be idle. It doubles each time that the node soon needs a block again.
type idleTime struct {
	time  time.Duration
	given time.Duration // when a block was given back last
}

func newIdleBlocks(clock func() time.Duration, least time.Duration) *idleBlocks {
	return &idleBlocks{clock, least, map[netip.Prefix]time.Duration{}, map[string]idleTime{}}
}

// minIdleTime returns how long a block of the pool must be idle before it is given back.
func (i *idleBlocks) minIdleTime(pool string) time.Duration { return max(i.times[pool].time, i.least) }

// noteIdle notes that nothing of the block is in use, and returns for how long.
func (i *idleBlocks) noteIdle(block netip.Prefix) time.Duration {
	since, ok := i.since[block]
	if !ok {
		since = i.clock()
		i.since[block] = since
	}
	return i.clock() - since
}

// noteUsed notes that the block is in use, or given back.
func (i *idleBlocks) noteUsed(block netip.Prefix) { delete(i.since, block) }

// forgetAllBut forgets all blocks but these.
func (i *idleBlocks) forgetAllBut(blocks map[netip.Prefix]bool) {
	maps.DeleteFunc(i.since, func(block netip.Prefix, _ time.Duration) bool { return !blocks[block] })
}

// noteGivenBack notes that a block of the pool was given back.
func (i *idleBlocks) noteGivenBack(pool string) {
	i.times[pool] = idleTime{i.minIdleTime(pool), i.clock()}
}

// noteNeeded makes the idle time of the pool longer when a block is needed again soon after one was given back.
func (i *idleBlocks) noteNeeded(pool string) {
	t, ok := i.times[pool]
	if !ok {
		return
	}
	if was := i.minIdleTime(pool); i.clock()-t.given < 2*was {
		t.time = min(2*was, maxIdleTime)
	} else {
		t.time = i.least
	}
	i.times[pool] = t
}

// untilNext returns the time until the next block may be given back, at most the given one.
func (i *idleBlocks) untilNext(most time.Duration) time.Duration {
	for _, since := range i.since {
		most = min(most, max(since+i.least-i.clock(), i.least/10))
	}
	return most
}
