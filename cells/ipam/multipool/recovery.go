package multipool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

func (c *Controller) newRecovery(reason string) *cluster.Recovery {
	return &cluster.Recovery{Began: time.Now().UTC(), Reason: reason}
}

// beginRecovery marks in the store that it has gone back. From then on nobody claims blocks. One that is under way in a restored store begins
// again: what was confirmed in it may be over.
func (c *Controller) beginRecovery(ctx context.Context, r cluster.Record, reason string) (cluster.Record, error) {
	r.Epoch, r.Recovery = max(r.Epoch, c.checkpoint.Epoch)+1, c.newRecovery(reason)
	r, err := c.backend.Info.Put(ctx, r)
	if err != nil {
		return r, fmt.Errorf("begin a recovery: %w", err)
	}
	c.log.Error("the cluster's store has gone back; nobody claims blocks until every node has confirmed its own", "reason", reason, "epoch", r.Epoch)
	return r, nil
}

// recordLost begins a recovery because a record is gone that nobody has deleted, unless the absence is explained: by a recovery that is
// under way, or by one that is over and that this node has not seen.
func (c *Controller) recordLost(ctx context.Context, what string) error {
	r, _, err := c.backend.Info.Get(ctx)
	if err != nil || r.Recovery != nil {
		return err
	}
	if r, err = c.beginRecovery(ctx, r, what+" is gone"); err != nil {
		return err
	}
	c.self.info, c.checkpoint.Epoch = r, r.Epoch
	return c.save()
}

// blockLost is recordLost for an own block. A new incarnation has no blocks in the store yet.
func (c *Controller) blockLost(ctx context.Context, b ownBlock) error {
	if b.State.inUseOnly() || c.self.info.Recovery != nil || c.self.session.Confirmed < c.self.info.Epoch {
		return nil
	}
	return c.recordLost(ctx, "block "+b.CIDR.String()+" of node "+c.checkpoint.Node.String())
}

// compareNodes begins a recovery when the store lacks a node that this one has seen and that nobody has deleted, and reports that node:
// the recovery waits for it. In a recovery it lists all nodes; else it looks for those that the watch says are gone.
func (c *Controller) compareNodes(ctx context.Context) error {
	if c.self.session.Confirmed < c.self.info.Epoch {
		if err := c.listNodes(ctx); err != nil {
			return err
		}
	}
	for name := range c.nodes.doubtful {
		if err := c.compareNode(ctx, name); err != nil {
			return err
		}
		delete(c.nodes.doubtful, name)
	}
	return nil
}

// listNodes doubts the nodes that the store lacks.
func (c *Controller) listNodes(ctx context.Context) error {
	there := map[string]cluster.NodeID{}
	for n, err := range c.backend.Nodes.All(ctx) {
		if errors.Is(err, cluster.ErrUnreadable) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list the nodes: %w", err)
		}
		there[n.ID.RecordName()] = n.ID
		c.addNode(n.ID)
	}
	c.nodes.doubt(there)
	c.nodes.complete = true
	return nil
}

func (c *Controller) compareNode(ctx context.Context, name string) error {
	id, known := c.nodes.names[name]
	if !known {
		return nil
	}
	if _, err := c.backend.Nodes.Get(ctx, id); errors.Is(err, cluster.ErrUnreadable) {
		return nil // it is there
	} else if !errors.Is(err, cluster.ErrNotFound) {
		return err
	}
	r, _, err := c.backend.Info.Get(ctx) // read after the node: who deletes a node says so before
	if err != nil {
		return err
	}
	if slices.Contains(r.Removed, id.Key) {
		c.nodes.remove(name)
		return nil
	}
	if err := c.recordLost(ctx, "the record of node "+id.String()); err != nil {
		return err
	}
	_, err = c.backend.Nodes.Create(ctx, cluster.Node{ID: id, State: cluster.NodeActive, Created: time.Now().UTC(), Reporter: c.checkpoint.Node.String()})
	if err != nil && !errors.Is(err, cluster.ErrExists) {
		return fmt.Errorf("report node %s, whose record is gone: %w", id, err)
	}
	return nil
}

// recoveryID identifies a recovery. Its epoch alone does not: after another restore the same one may begin a second time.
type recoveryID struct {
	cluster string
	epoch   uint64
	began   int64
}

func recoveryOf(r cluster.Record) recoveryID {
	id := recoveryID{cluster: r.ID, epoch: r.Epoch}
	if r.Recovery != nil {
		id.began = r.Recovery.Began.UnixNano()
	}
	return id
}

// recover confirms the blocks of this node in a recovery, and ends it when every node has confirmed its own.
func (c *Controller) recover(ctx context.Context) error {
	r := c.self.info
	if at := recoveryOf(r); c.self.session.Confirmed < r.Epoch && c.unknownCompared != at {
		if err := c.compareUnknownBlocks(ctx); err != nil {
			return err
		}
		c.unknownCompared = at
	}
	if c.self.session.Confirmed < r.Epoch && c.pools.complete && !c.hasConflict() && !c.unsettled() {
		s := c.self.session
		s.Confirmed, s.Contact = r.Epoch, time.Now().UTC()
		s, err := c.backend.Sessions.Put(ctx, s)
		if err != nil {
			c.self.connected = false
			return fmt.Errorf("confirm the blocks of node %s: %w", c.checkpoint.Node, err)
		}
		c.self.session = s
	}
	if r.Recovery == nil {
		return nil
	}
	if c.clock() < c.nextCheck {
		return ErrRecovery
	}
	// All nodes together look about ten times a second.
	c.nextCheck = c.clock() + c.cfg.SearchTime/2 + time.Duration(c.rng.Int64N(int64(c.cfg.SearchTime)+int64(len(c.nodes.names))*int64(c.cfg.SearchTime/10)))
	waiting, err := Unconfirmed(ctx, c.backend, r)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		return fmt.Errorf("%w: %d nodes have not confirmed, such as %s", ErrRecovery, len(waiting), waiting[0])
	}
	r.Recovery = nil
	if r, err = c.backend.Info.Put(ctx, r); err != nil {
		c.self.connected = false
		return fmt.Errorf("end the recovery: %w", err)
	}
	c.log.Info("the recovery of the cluster's store is over: every node has confirmed its blocks", "epoch", r.Epoch)
	c.self.info = r
	return nil
}

func (c *Controller) hasConflict() bool {
	return slices.ContainsFunc(c.checkpoint.Blocks, func(b ownBlock) bool { return b.State.inUseOnly() })
}

// unsettled reports whether addresses are in use of a block that overlaps blocks of a pool, and is none of them: those could be claimed.
func (c *Controller) unsettled() bool {
	return slices.ContainsFunc(c.checkpoint.Blocks, func(b ownBlock) bool {
		return b.State == blockOwned && c.pools.overlap(b.CIDR) && c.addresses.used(b.Pool, b.CIDR) > 0
	})
}

// Unconfirmed lists the nodes that a recovery waits for. It waits for one whose record cannot be read, too, which can be excluded by the
// name that the list has.
func Unconfirmed(ctx context.Context, b cluster.Backend, r cluster.Record) (waiting []cluster.NodeID, err error) {
	if r.Recovery == nil {
		return nil, nil
	}
	confirmed := map[cluster.NodeID]bool{}
	for s, err := range readable(b.Sessions.All(ctx)) {
		if err != nil {
			return nil, fmt.Errorf("list the sessions: %w", err)
		}
		confirmed[s.Node] = s.Confirmed >= r.Epoch
	}
	for n, err := range b.Nodes.All(ctx) {
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		if n.ID == (cluster.NodeID{}) {
			continue // it has no name of a node's record
		}
		if !confirmed[n.ID] && !slices.Contains(r.Recovery.Excluded, n.ID.String()) {
			waiting = append(waiting, n.ID)
		}
	}
	return waiting, nil
}
