package multipool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// lossDetector finds nodes, pools and own blocks that this node has seen, that the store lacks, and that nobody has
// deleted: then the store was rolled back, and a recovery begins.
type lossDetector struct {
	backend    cluster.Backend
	checkpoint *checkpoint
	history    *storeHistory
	session    *session
	pools      *knownPools
	nodes      *otherNodes
	seen       *seenPools
	log        *slog.Logger
}

// reportLostBlock begins a recovery because an own block is gone. A new incarnation has no blocks in the store yet.
func (l *lossDetector) reportLostBlock(ctx context.Context, b ownBlock) error {
	if b.State.notOwned() || l.history.info.Recovery != nil || !l.session.hasConfirmed(l.history.info) {
		return nil
	}
	return l.history.reportLost(ctx, "block "+b.CIDR.String()+" of node "+l.checkpoint.Node.String())
}

// detectLostNodes begins a recovery when the store lacks a node that this one has seen and that nobody has deleted, and
// reports that node: the recovery waits for it. Until this node has confirmed, it lists all nodes; else it looks for
// those that a snapshot lacked.
func (l *lossDetector) detectLostNodes(ctx context.Context) error {
	if !l.session.hasConfirmed(l.history.info) {
		if err := l.nodes.list(ctx); err != nil {
			return err
		}
	}
	for name := range l.nodes.doubtful {
		if err := l.detectLostNode(ctx, name); err != nil {
			return err
		}
		delete(l.nodes.doubtful, name)
	}
	return nil
}

// detectLostNode reads a node that a list or a snapshot lacked.
func (l *lossDetector) detectLostNode(ctx context.Context, name string) error {
	id, known := l.nodes.byName[name]
	if !known {
		return nil
	}
	if _, err := l.backend.Nodes.Get(ctx, id); errors.Is(err, cluster.ErrUnreadable) {
		return nil // it is there
	} else if !errors.Is(err, cluster.ErrNotFound) {
		return err
	}
	info, _, err := l.backend.Info.Get(ctx) // read after the node: who deletes a node says so before
	if err != nil {
		return err
	}
	if slices.Contains(info.Removed, id.Key) {
		l.nodes.remove(name)
		return nil
	}
	if err := l.history.reportLost(ctx, "the record of node "+id.String()); err != nil {
		return err
	}
	_, err = l.backend.Nodes.Create(ctx, cluster.Node{ID: id, State: cluster.NodeActive, Created: time.Now().UTC(), Reporter: l.checkpoint.Node.String()})
	if err != nil && !errors.Is(err, cluster.ErrExists) {
		return fmt.Errorf("report node %s, whose record is gone: %w", id, err)
	}
	return nil
}

// detectLostPools begins a recovery when the store has lost a pool that this node has seen, or a change of one. A pool
// that is gone is created again in the recovery; a change is not put back: what a pool is to be is for an administrator
// to say, and another node may have seen more.
func (l *lossDetector) detectLostPools(ctx context.Context) error {
	if !l.pools.complete {
		return nil
	}
	for _, p := range l.pools.byName {
		was, ok := l.seen.byName[p.Name]
		if !noPendingChange(p) || ok && !follows(p, was.Pool) {
			continue
		}
		if was.RolledBack { // the watch may be late, and tell what the store has lost
			if err := l.detectChange(ctx, was.Pool); err != nil {
				return err
			}
		} else if !ok || p.Version != was.Pool.Version {
			l.seen.set(seenPool{Pool: p})
		}
	}
	for name, was := range l.seen.byName {
		now, ok := l.pools.byName[name]
		if was.RolledBack || ok && (!noPendingChange(now) || follows(now, was.Pool)) {
			continue
		}
		if err := l.detectLostPool(ctx, was); err != nil {
			return err
		}
	}
	return nil
}

// noPendingChange reports whether no change of the pool waits for its acceptance.
func noPendingChange(p cluster.Pool) bool {
	return p.State != cluster.PoolPending && len(p.Pending) == 0
}

// follows reports whether p can come after the pool that was seen, when nothing of it was lost.
func follows(p, seen cluster.Pool) bool {
	return p.Generation > seen.Generation || p.Generation == seen.Generation && p.UID == seen.UID
}

// detectChange reads a pool of which the store had lost a change, and ends the report of it if an administrator has
// changed it since.
func (l *lossDetector) detectChange(ctx context.Context, was cluster.Pool) error {
	now, err := l.backend.Pools.Get(ctx, was.Name)
	switch {
	case errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrUnreadable):
		return nil
	case err != nil:
		return err
	}
	l.pools.byName[was.Name] = now
	if noPendingChange(now) && follows(now, was) {
		l.seen.set(seenPool{Pool: now})
	}
	return nil
}

// detectLostPool reads a pool that is gone, or older than the one that was seen, by a watch that may be late.
func (l *lossDetector) detectLostPool(ctx context.Context, was seenPool) error {
	p := was.Pool
	now, err := l.backend.Pools.Get(ctx, p.Name)
	switch {
	case errors.Is(err, cluster.ErrUnreadable):
		return nil
	case err != nil && !errors.Is(err, cluster.ErrNotFound):
		return err
	case err == nil && (!noPendingChange(now) || follows(now, p)):
		l.pools.byName[p.Name] = now
		return nil
	}
	info, _, err2 := l.backend.Info.Get(ctx) // read after the pool: who deletes a pool says so before
	if err2 != nil {
		return err2
	}
	if (err != nil || now.UID != p.UID) && slices.Contains(info.RemovedPools, p.UID) { // else a deletion that was given up
		l.seen.remove(p.Name)
		return nil
	}
	what := "pool " + p.Name
	if err == nil {
		what = "a change of pool " + p.Name
	}
	if l.session.hasConfirmed(info) { // else a recovery that this node has not seen explains it
		if err := l.history.reportLost(ctx, what); err != nil {
			return err
		}
	}
	if err == nil && admin.SameSettings(p, now) { // changed, and changed back
		l.seen.set(seenPool{Pool: now})
		return nil
	}
	l.log.Error("the cluster's store has lost a pool, or a change of one; porin doctor says how it was", "pool", p.Name)
	was.RolledBack = true
	l.seen.set(was)
	return nil
}
