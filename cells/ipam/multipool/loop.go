package multipool

import (
	"context"
	"errors"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// listen watches the store and makes a round after each change that concerns this node. It returns when a watch breaks,
// or when the node has a new incarnation, which has another session to watch.
func (c *Controller) listen(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := c.checkpoint.Node
	w, err := watch(ctx, c.backend, id)
	if err != nil {
		if ctx.Err() == nil {
			c.warnings.note(err, "the cluster's store cannot be watched")
			select {
			case <-ctx.Done():
			case <-time.After(c.cfg.SearchTime):
			}
		}
		return
	}
	defer func() { cancel(); w.drain() }()
	c.begin(ctx, w)
	for c.checkpoint.Node == id && ctx.Err() == nil {
		c.round(ctx)
		if !c.wait(ctx, w) {
			return
		}
	}
}

// begin waits for what the watches begin with: it need not be read. Without an answer it goes on after Config.SearchTime.
func (c *Controller) begin(ctx context.Context, w *watches) {
	timeout := time.After(c.cfg.SearchTime)
	for !c.pools.complete || !w.infoTold {
		select {
		case change, open := <-w.pools:
			if !open {
				return
			}
			c.pools.apply(change)
		case change, open := <-w.info:
			if !open {
				return
			}
			w.first(&w.infoTold, change.Kind)
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
	c.kubernetes.await(ctx, timeout)
}

// round reconciles the node with the store, then claims what is needed and gives back what is not.
func (c *Controller) round(ctx context.Context) {
	waiting := c.waiters.all()
	if c.kubernetes.read() {
		c.session.reconnect()
	}
	if c.kubernetes.gone() {
		c.blocks.drainAll()
	}
	if slices.ContainsFunc(waiting, func(w *waiter) bool { return w.reconcile }) {
		c.session.reconnect()
		c.reconciler.unknownDue = true
	}
	if slices.ContainsFunc(waiting, func(w *waiter) bool { return w.recovery }) {
		c.checkpoint.RecoveryRequested = true
		if err := c.checkpoint.save(); err != nil {
			c.checkpoint.RecoveryRequested = false
			c.answerAll(waiting, err)
			return
		}
		c.session.reconnect()
	}
	if c.blocks.hasUnownedBlocks() && c.clock() >= c.nextReconcile {
		c.nextReconcile = c.clock() + c.cfg.Interval
		c.session.reconnect()
	}
	err := c.reconcile(ctx)
	if err == nil {
		err = c.releaser.deleteReleased(ctx)
	} else if errors.Is(err, ErrRecovery) { // another node that uses the block may wait for its deletion
		c.warnings.note(c.releaser.deleteReleased(ctx), "blocks that were given back are still in the store")
	}
	c.blocked = err
	c.warnings.note(err, "no block is claimed")
	if err == nil {
		c.claimAndGiveBack(ctx, waiting)
	} else {
		c.publish() // BeginRecovery reads the status after its answer
		c.answerAll(waiting, err)
	}
	if c.checkpoint.changed {
		c.warnings.note(c.checkpoint.save(), "the checkpoint could not be saved")
	}
	c.publish()
}

// answerAll ends waits because nothing can be claimed.
func (c *Controller) answerAll(waiting []*waiter, err error) {
	for _, w := range waiting {
		c.waiters.answer(w, err)
	}
}

// reconcile makes the node agree with the store. Its error says why nothing can be claimed.
func (c *Controller) reconcile(ctx context.Context) error {
	if err := c.membership.connect(ctx); err != nil {
		return err
	}
	if err := c.membership.checkStore(ctx); err != nil {
		return err
	}
	if err := c.pools.read(ctx, c.backend.Pools); err != nil {
		return err
	}
	c.saved.update(c.pools)
	c.warnings.note(c.saved.save(), "the pools could not be saved") // now, as the store may hang from here on
	c.poolCreator.create(ctx)
	c.pools.configure(c.addresses)
	if err := c.reconciler.reconcileAddresses(ctx); err != nil {
		return err
	}
	if err := c.session.reportOtherOwners(ctx, c.blocks.otherOwners()); err != nil { // all owners: a node that the session does not name can be deleted
		return err
	}
	if err := c.recovery.run(ctx); err != nil {
		return err
	}
	return c.kubernetes.claimable()
}

// claimAndGiveBack claims what somebody waits for, and gives back what nobody needs.
func (c *Controller) claimAndGiveBack(ctx context.Context, waiting []*waiter) {
	c.blocks.giveOutAll()
	more, err := c.refiller.keepDefaultPool(ctx)
	c.warnings.note(err, "the default pool has too few free addresses on this node")
	if more {
		c.Kick()
	}
	promised := map[poolFamily]int64{}
	for _, w := range waiting {
		if w.reconcile || w.recovery {
			c.waiters.answer(w, nil)
		} else {
			c.waiters.answer(w, c.refiller.serve(ctx, w, promised))
		}
	}
	c.warnings.note(c.releaser.giveBackIdle(ctx), "blocks that are not needed are kept")
}

// nextRound returns how long to wait for the next round when nothing happens before.
func (c *Controller) nextRound() time.Duration {
	next := c.cfg.Interval
	if !c.session.connected && !c.kubernetes.deleted {
		next = min(next, c.cfg.SearchTime/2+time.Duration(c.rng.Int64N(int64(c.cfg.SearchTime))))
	}
	return max(c.releaser.untilNext(next), time.Millisecond)
}

// wait returns when there may be something to do, and false when a watch has ended.
func (c *Controller) wait(ctx context.Context, w *watches) bool {
	timer := time.NewTimer(c.nextRound())
	defer timer.Stop()
	for {
		ok, news, reconnect := true, true, true
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-c.kick:
			return true
		case <-c.addresses.Low():
			return true
		case <-c.kubernetes.changed:
			return true
		case change, open := <-w.pools:
			if ok = open; ok {
				news, reconnect = c.pools.apply(change), false
			}
		case change, open := <-w.nodes:
			if ok = open; ok {
				if news = c.membership.changed(change, w.first(&w.nodesTold, change.Kind)); news {
					c.blocks.drainAll() // the store may refuse to say more
				}
			}
		case change, open := <-w.info:
			if ok = open; ok {
				news = c.history.changed(change, w.first(&w.infoTold, change.Kind))
			}
		case change, open := <-w.session:
			if ok = open; ok {
				news = c.session.changed(change, w.first(&w.sessionTold, change.Kind))
			}
		}
		if !ok {
			return false
		}
		if news {
			if reconnect {
				c.session.reconnect()
			}
			return true
		}
	}
}

// watches are the records that listen watches. Each watch begins with a snapshot, which may be older than what connect
// has read. A later snapshot means that the watch broke, and that the store may be another one.
type watches struct {
	pools   <-chan cluster.Change[cluster.Pool]
	nodes   <-chan cluster.Change[cluster.Node]
	info    <-chan cluster.Change[cluster.ClusterInfo]
	session <-chan cluster.Change[cluster.Session]

	// Whether a watch has told a snapshot.
	nodesTold, infoTold, sessionTold bool
}

// watch begins to watch what concerns the node.
func watch(ctx context.Context, b cluster.Backend, node cluster.NodeID) (*watches, error) {
	w := &watches{}
	var errs [4]error
	w.pools, errs[0] = b.Pools.Watch(ctx)
	w.nodes, errs[1] = b.Nodes.Watch(ctx)
	w.info, errs[2] = b.Info.Watch(ctx)
	w.session, errs[3] = b.Sessions.Watch(ctx, node)
	return w, errors.Join(errs[:]...)
}

// first reports whether the watch has told no snapshot before this change.
func (w *watches) first(told *bool, kind cluster.ChangeKind) bool {
	first := !*told
	*told = *told || kind == cluster.Snapshot
	return first
}

// drain waits for the ends of the watches.
func (w *watches) drain() {
	for range w.pools {
	}
	for range w.nodes {
	}
	for range w.info {
	}
	for range w.session {
	}
}
