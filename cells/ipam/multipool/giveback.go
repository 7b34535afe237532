package multipool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// releaser gives back blocks that nothing uses, and deletes in the store what was released.
type releaser struct {
	*common

	idle map[netip.Prefix]time.Duration // since when nothing of an own block has been in use
}

// releaseIdle releases blocks that have had no address in use for a while and that the node does not need.
func (r *releaser) releaseIdle(ctx context.Context) error {
	var errs []error
	now, idle := r.clock(), map[netip.Prefix]time.Duration{}
	for _, b := range slices.Clone(r.checkpoint.Blocks) {
		if b.State != blockOwned && !b.State.notOwned() {
			continue
		}
		if r.blocks.used(b) || b.State == blockOwned && r.needs(b) {
			continue
		}
		since, ok := r.idle[b.CIDR]
		if !ok {
			since = now
		}
		switch {
		case b.State.notOwned():
			errs = append(errs, r.blocks.remove(b))
		case now-since >= r.cfg.IdleTime || r.pools.obsolete(b):
			errs = append(errs, r.blocks.release(b.Pool, b.CIDR))
		default:
			idle[b.CIDR] = since
		}
	}
	r.idle = idle
	return errors.Join(append(errs, r.deleteReleased(ctx))...)
}

// needs reports whether the node keeps an empty block: a node with endpoints keeps Config.PreAllocate free addresses of
// the default pool.
func (r *releaser) needs(b OwnBlock) bool {
	return b.Pool == DefaultPool && !r.pools.obsolete(b) && r.addresses.endpoints() > 0 &&
		r.addresses.free(b.Pool, cluster.FamilyOf(b.CIDR.Addr()), b.CIDR) < int64(r.cfg.PreAllocate)
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
		err := r.backend.Blocks.Delete(ctx, b.CIDR, b.Claim)
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
		if b.Checks == 0 {
			r.checkpoint.remove(b.CIDR)
			continue
		}
		b.nextDeletion = r.clock() + r.cfg.IdleTime/8<<(2*(lateChecks-b.Checks))
		b.Checks--
		r.checkpoint.set(b)
	}
	return nil
}

// deleteEarlierClaim deletes a claim of this node that arrived after the block was claimed again.
func (r *releaser) deleteEarlierClaim(ctx context.Context, b OwnBlock) error {
	now, err := r.backend.Blocks.Get(ctx, b.CIDR)
	if err == nil && now.Owner == r.checkpoint.Node {
		err = r.backend.Blocks.Delete(ctx, now.CIDR, now.Claim)
	}
	if errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrUnreadable) {
		return nil
	}
	return err
}
