package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// storeHistory has the record of the cluster and the last position of the store, as this node has read them. It sets
// the mark of a recovery if the store was rolled back or replaced, or if an administrator has requested it.
type storeHistory struct {
	*common

	info      cluster.ClusterInfo // as it was read last
	nextCheck time.Duration       // when the position is read again
}

// read reads the record of the cluster, or creates it, and sets the mark if that is needed.
func (h *storeHistory) read(ctx context.Context) error {
	info, position, err := h.readOrMark(ctx)
	if errors.Is(err, cluster.ErrExists) || errors.Is(err, cluster.ErrConflict) { // another node did it at the same time
		info, position, err = h.readOrMark(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the record of the cluster: %w", err)
	}
	h.postponeCheck()
	ck := h.checkpoint
	h.info = info
	if ck.Cluster != "" && (info.Recovery != nil || info.ID != ck.Cluster || info.LastRecovery() != ck.lastRecovery()) {
		if err := h.blocks.releaseAfterBoot("the cluster's store was rolled back before this boot"); err != nil {
			return err
		}
	}
	return h.remember(info, position)
}

// remember writes the record's IDs and the position to the checkpoint.
func (h *storeHistory) remember(info cluster.ClusterInfo, position cluster.Position) error {
	ck := h.checkpoint
	if ck.Cluster == info.ID && ck.Position == position && ck.lastRecovery() == info.LastRecovery() && !ck.RecoveryRequested {
		return nil
	}
	ck.Cluster, ck.Position, ck.RecoveryRequested = info.ID, position, false
	if last := info.LastRecovery(); last != "" && last != ck.lastRecovery() {
		ck.Recoveries = appendLast(ck.Recoveries, last, maxRecoveries)
	}
	return ck.save()
}

// readOrMark reads the record, or creates it. It sets the mark if [storeHistory.markReason] returns a reason, unless
// another node has set a new mark.
func (h *storeHistory) readOrMark(ctx context.Context) (info cluster.ClusterInfo, position cluster.Position, err error) {
	info, position, err = h.recent(ctx)
	if errors.Is(err, cluster.ErrNotFound) {
		info, err = cluster.ClusterInfo{}, nil
	}
	if err != nil {
		return info, position, err
	}
	reason := h.markReason(info, position)
	if info.ID == "" {
		info.ID = rand.Text()
		if reason == "" {
			info, err = h.backend.Info.Put(ctx, info)
			return info, position, err
		}
	}
	if reason != "" && (info.Recovery == nil || slices.Contains(h.checkpoint.Recoveries, info.Recovery.ID)) {
		info, err = h.mark(ctx, info, reason)
	}
	return info, position, err
}

// markReason returns why a new mark is needed, or "".
func (h *storeHistory) markReason(info cluster.ClusterInfo, p cluster.Position) string {
	ck := h.checkpoint
	switch {
	case ck.RecoveryRequested:
		return "an administrator said so"
	case ck.Cluster == "": // the node has seen nothing
		return ""
	case info.ID == "":
		return "the record of the cluster is gone"
	case info.ID != ck.Cluster, ck.Position != cluster.Position{} && p.Before(ck.Position), !info.KnowsRecovery(ck.lastRecovery()):
		return "the store is of an earlier time than node " + h.cfg.Node + " has seen"
	}
	return ""
}

// mark sets the mark of a recovery: from then on no node claims blocks.
func (h *storeHistory) mark(ctx context.Context, info cluster.ClusterInfo, reason string) (cluster.ClusterInfo, error) {
	if info.Recovery != nil { // of a backup made in a recovery, without later writes of the nodes: replace it
		info.EndRecovery()
	}
	info.Recovery = &cluster.Recovery{ID: rand.Text(), Began: time.Now().UTC(), Reason: reason}
	info, err := h.backend.Info.Put(ctx, info)
	if err != nil {
		return info, fmt.Errorf("begin a recovery: %w", err)
	}
	h.log.Error("a recovery of the cluster's store has begun; no node claims a block until an administrator ends it", "reason", reason, "command", h.backend.Command("ipam recover --end"))
	return info, nil
}

// positionInterval is the time between two reads of the store's position, in Config.Interval: a watch does not always
// notice that the store is another one.
const positionInterval = 3

// check reads the position now and then, and reports whether the record must be read again.
func (h *storeHistory) check(ctx context.Context) (changed bool, err error) {
	if h.clock() < h.nextCheck {
		return false, nil
	}
	info, position, err := h.recent(ctx)
	if errors.Is(err, cluster.ErrNotFound) || err == nil && (h.differs(info) || h.markReason(info, position) != "") {
		return true, nil
	}
	if err == nil {
		h.postponeCheck()
	}
	return false, err
}

// recent is Get, without a request if the backend knows a recent position that needs no mark. The last claim may have
// read a higher one.
func (h *storeHistory) recent(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	info, position, err := h.backend.Info.Recent(ctx)
	if errors.Is(err, cluster.ErrNotFound) || err == nil && h.markReason(info, position) != "" {
		return h.backend.Info.Get(ctx)
	}
	return info, position, err
}

// postponeCheck sets when the position is read again.
func (h *storeHistory) postponeCheck() {
	h.nextCheck = h.clock() + positionInterval*h.cfg.Interval/2 + time.Duration(h.rng.Int64N(int64(positionInterval*h.cfg.Interval)))
}

// differs reports whether a recovery has begun or ended since the record was read, or the cluster is another one.
func (h *storeHistory) differs(info cluster.ClusterInfo) bool {
	return info.ID != h.info.ID || info.LastRecovery() != h.info.LastRecovery() || (info.Recovery == nil) != (h.info.Recovery == nil)
}

// reportLost sets the mark, unless one stands: a record of this node is gone or older than its last write, as reason
// says.
func (h *storeHistory) reportLost(ctx context.Context, reason string) error {
	info, position, err := h.backend.Info.Get(ctx)
	if err != nil || info.Recovery != nil {
		return err
	}
	if info, err = h.mark(ctx, info, reason); err != nil {
		return err
	}
	h.info = info
	return h.remember(info, position)
}

// verify reads the record of the cluster and the position again after a claim.
func (h *storeHistory) verify(ctx context.Context) error {
	info, position, err := h.backend.Info.Get(ctx)
	if err != nil {
		return err
	}
	if info.Recovery != nil || h.differs(info) || h.markReason(info, position) != "" {
		return ErrRecovery
	}
	h.checkpoint.Position, h.checkpoint.changed = position, true
	return nil
}

// changed reports whether the record of the cluster says something new. first is true for the first snapshot of the
// watch.
func (h *storeHistory) changed(change cluster.Change[cluster.ClusterInfo], first bool) bool {
	info, again := change.Item, false
	if change.Kind == cluster.Snapshot {
		again = !first
		if len(change.All) > 0 {
			info = change.All[0]
		}
	}
	return again || change.Kind == cluster.Deleted || h.differs(info)
}
