package multipool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
)

// rounds is the task: it makes the node agree with the store, claims what the node needs, and gives back the rest.
type rounds struct {
	*common

	waiters   *waiters
	published *published

	// The parts. Each uses only those above it.
	reconciler *reconciler
	membership *membership
	creator    *poolCreator
	releaser   *releaser
	claimer    *claimer

	unlock        func() error  // of the node's folder; nil before it is open
	nextReconcile time.Duration // when blocks in conflict are reconciled again
	blocked       error         // why the last round claimed nothing
}

// run runs until ctx ends. If the folder cannot be read, the node gives out nothing.
func (r *rounds) run(ctx context.Context) error {
	if r.unlock == nil {
		if err := r.open(); err != nil {
			r.log.Error("no address is given out until the agent is started again", "error", err)
			r.addresses.Suspend(err)
			<-ctx.Done()
			return ctx.Err()
		}
	}
	for ctx.Err() == nil {
		r.listen(ctx)
	}
	if err := r.unlock(); err != nil {
		r.log.Warn("the folder of the node is not unlocked before the agent ends", "error", err)
	}
	return ctx.Err()
}

// open locks the node's folder, reads it, and gives out addresses of the blocks that it has, before the store was
// asked.
func (r *rounds) open() error {
	unlock, err := lockFolder(r.cfg.Dir)
	if err == nil {
		if err = r.checkpoint.load(r.cfg.Node); err != nil {
			err = errors.Join(err, unlock())
		}
	}
	if err != nil {
		r.waiters.refuse(err)
		return err
	}
	r.unlock = unlock
	r.kubernetes.read()
	for _, p := range r.checkpoint.Pools {
		r.pools.byName[p.Name] = p
		r.addresses.configure(p)
	}
	if r.checkpoint.Contested != "" {
		_ = r.session.contest(r.checkpoint.Contested)
	}
	r.blocks.resume()
	r.publish()
	return nil
}

// event applies a change that a watch tells, and reports whether a round is due. It is nil when a watch has ended.
type event func() bool

// listen watches the store and makes a round after each change that concerns this node. It returns when a watch breaks,
// or when the node has a new incarnation, which has another session to watch.
func (r *rounds) listen(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer func() { cancel(); watches.Wait() }()
	id, events, infoTold := r.checkpoint.Node, make(chan event), false
	due := func(news bool) bool {
		if news {
			r.session.reconnect()
		}
		return news
	}
	err := errors.Join(
		follow(ctx, &watches, r.backend.Pools.Watch, events, func(change cluster.Change[cluster.Pool], _ bool) bool {
			return r.pools.apply(change)
		}),
		follow(ctx, &watches, r.backend.Nodes.Watch, events, func(change cluster.Change[cluster.Node], first bool) bool {
			news := r.membership.changed(change, first)
			if news {
				r.blocks.drainAll() // the store may refuse to say more
			}
			return due(news)
		}),
		follow(ctx, &watches, r.backend.Info.Watch, events, func(change cluster.Change[cluster.ClusterInfo], first bool) bool {
			infoTold = true
			return due(r.history.changed(change, first))
		}),
		follow(ctx, &watches, func(ctx context.Context) (<-chan cluster.Change[cluster.Session], error) {
			return r.backend.Sessions.Watch(ctx, id)
		}, events, func(change cluster.Change[cluster.Session], first bool) bool {
			return due(r.session.changed(change, first))
		}),
	)
	timeout := time.After(r.cfg.SearchTime)
	if err != nil && ctx.Err() == nil {
		r.warnings.record(err, "the cluster's store cannot be watched")
		select {
		case <-ctx.Done():
		case <-timeout:
		}
		return
	}
	expired := false
	for !expired && (!r.pools.complete || !infoTold) { // the first snapshot of a watch need not be read
		select {
		case event := <-events:
			if event == nil {
				return
			}
			event()
		case <-timeout:
			expired = true
		case <-ctx.Done():
			return
		}
	}
	if !expired {
		r.kubernetes.await(ctx, timeout)
	}
	for r.checkpoint.Node == id && ctx.Err() == nil {
		r.round(ctx)
		if !r.wait(ctx, events) {
			return
		}
	}
}

// follow sends the changes of a watch as events. A watch begins with a snapshot, which may be older than what connect
// has read: changes up to that one are first. A later snapshot means that the watch broke, and that the store may be
// another one.
func follow[T any](
	ctx context.Context, watches *sync.WaitGroup, watch func(context.Context) (<-chan cluster.Change[T], error), events chan<- event,
	apply func(change cluster.Change[T], first bool) bool,
) error {
	changes, err := watch(ctx)
	if err != nil {
		return err
	}
	watches.Go(func() {
		first := true
		for change := range changes {
			isFirst := first
			first = first && change.Kind != cluster.Snapshot
			select {
			case events <- func() bool { return apply(change, isFirst) }:
			case <-ctx.Done():
			}
		}
		select {
		case events <- nil:
		case <-ctx.Done():
		}
	})
	return nil
}

// wait returns when there may be something to do, and false when a watch has ended.
func (r *rounds) wait(ctx context.Context, events <-chan event) bool {
	next := r.cfg.Interval
	if !r.session.connected && !r.kubernetes.deleted {
		next = min(next, r.cfg.SearchTime/2+time.Duration(r.rng.Int64N(int64(r.cfg.SearchTime))))
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-r.waiters.kicked:
			return true
		case <-r.addresses.Low():
			return true
		case <-r.kubernetes.changed:
			return true
		case event := <-events:
			if event == nil {
				return false
			}
			if event() {
				return true
			}
		}
	}
}

// round reconciles the node with the store, then claims what is needed and gives back what is not.
func (r *rounds) round(ctx context.Context) {
	waiting := r.waiters.all()
	if r.kubernetes.read() {
		r.session.reconnect()
	}
	if r.kubernetes.gone() {
		r.blocks.drainAll()
	}
	if slices.ContainsFunc(waiting, func(w *waiter) bool { return w.reconcile }) {
		r.session.reconnect()
		r.reconciler.unknownDue = true
	}
	if slices.ContainsFunc(waiting, func(w *waiter) bool { return w.recovery }) {
		r.checkpoint.RecoveryRequested = true
		if err := r.checkpoint.save(); err != nil {
			r.checkpoint.RecoveryRequested = false
			r.waiters.answer(err, waiting...)
			return
		}
		r.session.reconnect()
	}
	if r.blocks.hasUnownedBlocks() && r.clock() >= r.nextReconcile {
		r.nextReconcile = r.clock() + r.cfg.Interval
		r.session.reconnect()
	}
	err := r.reconcile(ctx)
	if err == nil {
		err = r.releaser.deleteReleased(ctx)
	} else if errors.Is(err, ErrRecovery) { // another node that uses the block may wait for its deletion
		r.warnings.record(r.releaser.deleteReleased(ctx), "blocks that were given back are still in the store")
	}
	r.blocked = err
	r.warnings.record(err, "no block is claimed")
	if err == nil {
		r.claimAndGiveBack(ctx, waiting)
	} else {
		r.publish() // BeginRecovery reads the status after its answer
		r.waiters.answer(err, waiting...)
	}
	if r.checkpoint.changed {
		r.warnings.record(r.checkpoint.save(), "the checkpoint could not be saved")
	}
	r.publish()
}

// reconcile makes the node agree with the store. Its error says why nothing can be claimed.
func (r *rounds) reconcile(ctx context.Context) error {
	if err := r.membership.connect(ctx); err != nil {
		return err
	}
	if err := r.pools.read(ctx, r.backend.Pools); err != nil {
		return err
	}
	if r.checkpoint.setPools(r.pools.byName) {
		r.warnings.record(r.checkpoint.save(), "the checkpoint could not be saved") // now, as the store may hang from here on
	}
	r.warnings.record(r.creator.create(ctx), "the default pool could not be created")
	r.pools.configure(r.addresses)
	if err := r.reconciler.reconcileAddresses(ctx); err != nil {
		return err
	}
	// All nodes that own blocks with addresses in use here: a node that is not named can be deleted.
	if owners := r.blocks.otherOwners(); !slices.Equal(owners, r.session.current.OtherOwners) {
		if err := r.session.update(ctx, func(next *cluster.Session) { next.OtherOwners = owners }); err != nil {
			return fmt.Errorf("report the conflicts of node %s: %w", r.checkpoint.Node, err)
		}
	}
	if err := r.membership.joinRecovery(ctx); err != nil {
		return err
	}
	if r.kubernetes.deleted {
		return ErrNodeDeleted
	}
	return nil
}

// claimAndGiveBack claims what the waiters need, and gives back what the node does not need.
func (r *rounds) claimAndGiveBack(ctx context.Context, waiting []*waiter) {
	r.blocks.enableAll()
	more, err := r.claimer.keepDefaultPool(ctx)
	r.warnings.record(err, "the default pool has too few free addresses on this node")
	if more {
		r.waiters.wake()
	}
	promised := map[poolFamily]int64{}
	for _, w := range waiting {
		var err error
		if !w.reconcile && !w.recovery {
			err = r.claimer.serve(ctx, w, promised)
		}
		r.waiters.answer(err, w)
	}
	r.warnings.record(r.releaser.releaseIdle(ctx), "blocks that are not needed are kept")
}
