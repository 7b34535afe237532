package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"porin.dev/porin/cells/cluster"
)

// storeHistory is what this node knows of the history of the store: the record of the cluster, and the last position.
// It notices when the store was rolled back, or is another one, and begins a recovery.
type storeHistory struct {
	cfg        Config
	store      cluster.Info
	checkpoint *checkpoint
	blocks     *ownBlocks
	request    *recoveryRequest
	clock      func() time.Duration
	rng        *mathrand.Rand
	log        *slog.Logger

	info      cluster.ClusterInfo // as it was read last
	nextCheck time.Duration       // when the position is read again
}

// read reads the record of the cluster, or creates it, and begins a recovery when the store was rolled back.
func (h *storeHistory) read(ctx context.Context) error {
	info, position, err := h.readOrCreate(ctx)
	if errors.Is(err, cluster.ErrExists) || errors.Is(err, cluster.ErrConflict) { // another node did it at the same time
		info, position, err = h.readOrCreate(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the record of the cluster: %w", err)
	}
	h.postponeCheck()
	ck := h.checkpoint
	h.info = info
	if ck.Cluster != "" && (info.Recovery != nil || info.Epoch != ck.Epoch || info.ID != ck.Cluster) {
		if err := h.blocks.releaseAfterBoot("the cluster's store was rolled back before this boot"); err != nil {
			return err
		}
	}
	if ck.Cluster != info.ID || ck.Epoch != info.Epoch || ck.Position != position {
		ck.Cluster, ck.Epoch, ck.Position = info.ID, info.Epoch, position
		return h.checkpoint.save()
	}
	return nil
}

// readOrCreate also begins a recovery that was requested, or that the store needs.
func (h *storeHistory) readOrCreate(ctx context.Context) (info cluster.ClusterInfo, position cluster.Position, err error) {
	request, err := h.request.pending()
	if err != nil {
		return info, position, err
	}
	requested := request != nil
	info, position, err = h.store.Get(ctx)
	ck := h.checkpoint
	switch {
	case requested && errors.Is(err, cluster.ErrNotFound):
		info, err = h.store.Put(ctx, cluster.ClusterInfo{ID: rand.Text(), Epoch: ck.Epoch + 1, Recovery: newRecovery(requestedReason)})
	case requested && err == nil:
		info, err = h.beginRecovery(ctx, info, requestedReason)
	case errors.Is(err, cluster.ErrNotFound) && ck.Cluster == "":
		info, err = h.store.Put(ctx, cluster.ClusterInfo{ID: rand.Text()})
	case errors.Is(err, cluster.ErrNotFound):
		info, err = h.store.Put(ctx, cluster.ClusterInfo{ID: rand.Text(), Epoch: ck.Epoch + 1, Recovery: newRecovery("the record of the cluster is gone")})
	case err == nil && ck.Cluster != "" && h.isRolledBack(info, position):
		info, err = h.beginRecovery(ctx, info, "the store is of an earlier time than node "+h.cfg.Node+" has seen")
	}
	if requested && err == nil {
		h.request.done(request)
	}
	return info, position, err
}

// positionInterval is the time between two reads of the store's position, in Config.Interval: a watch does not always
// notice that the store is another one.
const positionInterval = 3

// check reads the position now and then, and reports whether the store was rolled back.
func (h *storeHistory) check(ctx context.Context) (rolledBack bool, err error) {
	if h.clock() < h.nextCheck {
		return false, nil
	}
	info, position, err := h.store.Get(ctx)
	if errors.Is(err, cluster.ErrNotFound) || err == nil && (info.ID != h.info.ID || info.Epoch != h.info.Epoch || h.isRolledBack(info, position)) {
		return true, nil
	}
	if err == nil {
		h.postponeCheck()
	}
	return false, err
}

// postponeCheck sets when the position is read again.
func (h *storeHistory) postponeCheck() {
	h.nextCheck = h.clock() + positionInterval*h.cfg.Interval/2 + time.Duration(h.rng.Int64N(int64(positionInterval*h.cfg.Interval)))
}

// isRolledBack reports whether the store is of an earlier time than the node has seen, and nobody has noticed.
func (h *storeHistory) isRolledBack(info cluster.ClusterInfo, p cluster.Position) bool {
	ck := h.checkpoint
	if info.Epoch > ck.Epoch {
		return false // somebody has noticed
	}
	return info.ID != ck.Cluster || info.Epoch < ck.Epoch || ck.Position != (cluster.Position{}) && p.Before(ck.Position)
}

const requestedReason = "an administrator said so"

func newRecovery(reason string) *cluster.Recovery {
	return &cluster.Recovery{ID: rand.Text(), Began: time.Now().UTC(), Reason: reason}
}

// beginRecovery begins a recovery in the store: from then on nobody claims blocks. When one is under way in a restored
// store, another one begins, as what nodes have confirmed in it may not hold any more.
func (h *storeHistory) beginRecovery(ctx context.Context, info cluster.ClusterInfo, reason string) (cluster.ClusterInfo, error) {
	info.Epoch, info.Recovery = max(info.Epoch, h.checkpoint.Epoch)+1, newRecovery(reason)
	info, err := h.store.Put(ctx, info)
	if err != nil {
		return info, fmt.Errorf("begin a recovery: %w", err)
	}
	h.log.Error("the cluster's store was rolled back; no node claims a new block until every node has confirmed its own", "reason", reason, "epoch", info.Epoch)
	return info, nil
}

// reportLost begins a recovery because a record is gone that nobody has deleted, unless the absence is explained: by a
// recovery that is under way, or by one that is over and that this node has not seen.
func (h *storeHistory) reportLost(ctx context.Context, what string) error {
	info, _, err := h.store.Get(ctx)
	if err != nil || info.Recovery != nil {
		return err
	}
	if info, err = h.beginRecovery(ctx, info, what+" is gone"); err != nil {
		return err
	}
	h.info, h.checkpoint.Epoch = info, info.Epoch
	return h.checkpoint.save()
}

// verify reads the record of the cluster and the position again after a claim.
func (h *storeHistory) verify(ctx context.Context) error {
	info, position, err := h.store.Get(ctx)
	if err != nil {
		return err
	}
	if info.Recovery != nil || info.ID != h.checkpoint.Cluster || info.Epoch != h.checkpoint.Epoch || h.isRolledBack(info, position) {
		return ErrRecovery
	}
	h.checkpoint.Position, h.checkpoint.changed = position, true
	return nil
}

// changed reports whether the record of the cluster says something new. first is true for the first snapshot of the watch.
func (h *storeHistory) changed(change cluster.Change[cluster.ClusterInfo], first bool) bool {
	info, again := change.Item, false
	if change.Kind == cluster.Snapshot {
		again = !first
		if len(change.All) > 0 {
			info = change.All[0]
		}
	}
	return again || change.Kind == cluster.Deleted || info.ID != h.info.ID || info.Epoch != h.info.Epoch || (info.Recovery == nil) != (h.info.Recovery == nil)
}

// mayCreateDefaultPool reports whether an agent may create the default pool: not in a recovery, in which a node that has
// seen the pool may come and create it as it was, and not when an administrator has deleted it. The record says so
// before the pool is gone.
func (h *storeHistory) mayCreateDefaultPool(ctx context.Context) (bool, error) {
	if h.info.DefaultPoolRemoved {
		return false, nil
	}
	info, _, err := h.store.Get(ctx)
	if err == nil && info.ID == h.info.ID {
		h.info.DefaultPoolRemoved = info.DefaultPoolRemoved
	}
	return info.Recovery == nil && !info.DefaultPoolRemoved, err
}
