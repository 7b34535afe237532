package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/task"
)

// Delete deletes the node's blocks, so that other nodes can claim them, waits RecordDelay, deletes claims that arrived
// meanwhile, and then the node's record. After an interruption it can be called again; the delay is 0 if no block is
// left. machineOff says that the machine is off and will not come back. Without it, only blocks of a node that was
// deleted before can be deleted, such as claims that arrived after the deletion. A machine that comes back all the same
// continues as a new incarnation, and addresses of its pods may be in use elsewhere.
func (a *Nodes) Delete(ctx context.Context, id cluster.NodeID, machineOff bool) error {
	d := nodeDeletion{backend: a.backend, recordDelay: a.RecordDelay, id: id, machineOff: machineOff}
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("delete node %s: %w", id, err)
	}
	return nil
}

// nodeDeletion is one try to delete a node.
type nodeDeletion struct {
	backend     cluster.Backend
	recordDelay time.Duration // see [Nodes]
	id          cluster.NodeID
	machineOff  bool

	// began and position are the cluster's record and the store's position at the beginning.
	began    cluster.ClusterInfo
	position cluster.Position
}

func (d *nodeDeletion) run(ctx context.Context) (err error) {
	if d.began, d.position, err = d.info(ctx); err != nil {
		return err
	}
	if err := d.checkUnused(ctx); err != nil {
		return err
	}
	if err := d.markReleasing(ctx); errors.Is(err, ErrNoNode) {
		return d.deleteOrphans(ctx)
	} else if err != nil {
		return err
	}
	delay, err := d.delay(ctx)
	if err != nil {
		return err
	}
	for _, wait := range []time.Duration{delay, 0} { // a second time for a claim that was under way
		if err := d.deleteBlocks(ctx); err != nil {
			return err
		}
		if err := task.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	n, err := d.checkReleasing(ctx)
	if err := errors.Join(d.checkNotRestored(ctx), err); err != nil {
		return err
	}
	if err := d.recordRemoved(ctx); err != nil {
		return err
	}
	if err := errors.Join(d.removePublished(ctx), d.backend.Sessions.Delete(ctx, d.id)); err != nil {
		return err
	}
	return d.backend.Nodes.Delete(ctx, n) // not a record that a restore has brought back since
}

// info is the record of the cluster, the zero one when there is none: then no node has claims.
func (d *nodeDeletion) info(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	info, position, err := d.backend.Info.Get(ctx)
	if errors.Is(err, cluster.ErrNotFound) {
		err = nil
	}
	return info, position, err
}

// checkNotRestored returns [ErrRestored] when the store was restored since the deletion began: it has other claims now.
func (d *nodeDeletion) checkNotRestored(ctx context.Context) error {
	info, position, err := d.info(ctx)
	if err == nil && (info.ID != d.began.ID || info.LastRecovery() != d.began.LastRecovery() || position.Before(d.position)) {
		err = ErrRestored
	}
	return err
}

// checkUnused returns [ErrBlocksInUse] when another node has reported that addresses of this one's blocks are in use
// there, and [ErrConflictsUnknown] when what it has reported cannot be read. In a recovery that node alone can claim
// them.
func (d *nodeDeletion) checkUnused(ctx context.Context) error {
	if info, _, err := d.info(ctx); err != nil || info.Recovery != nil {
		return err
	}
	for s, err := range d.backend.Sessions.All(ctx) {
		switch {
		case errors.Is(err, cluster.ErrUnreadable) && s.Node.RecordName() == d.id.RecordName():
			continue // a node does not conflict with itself
		case errors.Is(err, cluster.ErrUnreadable):
			return fmt.Errorf("%w: node %s: %w", ErrConflictsUnknown, s.Node, err)
		case err != nil:
			return fmt.Errorf("list the sessions: %w", err)
		case slices.Contains(s.OtherOwners, d.id.String()):
			return fmt.Errorf("%w: node %s", ErrBlocksInUse, s.Node)
		}
	}
	return nil
}

// delay is RecordDelay, or the longest quarantine of the pools that the node's blocks are from.
func (d *nodeDeletion) delay(ctx context.Context) (longest time.Duration, err error) {
	if d.recordDelay >= 0 {
		return d.recordDelay, nil
	}
	for b, err := range cluster.Readable(d.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: d.id})) {
		if err != nil {
			return 0, err
		}
		p, err := d.backend.Pools.Get(ctx, b.Pool)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			return 0, err
		}
		longest = max(longest, p.Quarantine)
	}
	return longest, nil
}

// markReleasing marks the node, so that it claims no more blocks. It undoes the mark if an agent starts on the machine
// meanwhile.
func (d *nodeDeletion) markReleasing(ctx context.Context) error {
	session, err := d.session(ctx)
	if err != nil {
		return err
	}
	n, err := d.backend.Nodes.Get(ctx, d.id)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return ErrNoNode
	case err != nil:
		return err
	case !d.machineOff:
		return ErrMachineMayRun
	case n.State == cluster.NodeReleasing: // a deletion that was interrupted: some blocks may be deleted
		return nil
	}
	n.State = cluster.NodeReleasing
	if n, err = d.backend.Nodes.Update(ctx, n); err != nil {
		return err
	}
	now, err := d.session(ctx)
	if err == nil && now == session {
		return nil
	}
	if err == nil {
		err = ErrMachineRuns
	}
	n.State = cluster.NodeActive
	_, undo := d.backend.Nodes.Update(context.WithoutCancel(ctx), n)
	return errors.Join(err, undo)
}

// session is the ID of the node's session; "" when it has none.
func (d *nodeDeletion) session(ctx context.Context) (string, error) {
	s, err := d.backend.Sessions.Get(ctx, d.id)
	if errors.Is(err, cluster.ErrNotFound) {
		return "", nil
	}
	return s.ID, err
}

// checkReleasing returns [ErrMachineRuns] when another command has made the node active again.
func (d *nodeDeletion) checkReleasing(ctx context.Context) (cluster.Node, error) {
	n, err := d.backend.Nodes.Get(ctx, d.id)
	if err == nil && n.State != cluster.NodeReleasing {
		err = ErrMachineRuns
	}
	return n, err
}

// deleteOrphans deletes the blocks of a node without a record, and what it has published: a node without claims has no
// more.
func (d *nodeDeletion) deleteOrphans(ctx context.Context) error {
	blocks, err := d.blocks(ctx)
	if err != nil {
		return err
	}
	published, err := d.isPublished(ctx)
	if err != nil {
		return err
	}
	if len(blocks) == 0 && !published {
		return ErrNoNode
	}
	if err := errors.Join(d.checkNotRestored(ctx), d.checkUnused(ctx)); err != nil {
		return err
	}
	deleted, err := cluster.NodeDeleted(ctx, d.backend, d.id)
	switch {
	case err != nil:
		return err
	case !deleted && !d.machineOff:
		return ErrMachineMayRun
	case !deleted:
		if err := d.recordRemoved(ctx); err != nil {
			return err
		}
	}
	return errors.Join(d.remove(ctx, blocks), d.removePublished(ctx))
}

// isPublished reports whether other nodes know the node's network.
func (d *nodeDeletion) isPublished(ctx context.Context) (bool, error) {
	for n, err := range d.backend.Networks.All(ctx) {
		if n.Node == d.id { // also an unreadable record
			return true, nil
		}
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return false, fmt.Errorf("list the networks of nodes: %w", err)
		}
	}
	return false, nil
}

// removePublished deletes the node's published records. It comes after recordRemoved: later writes of an agent count
// for nothing.
func (d *nodeDeletion) removePublished(ctx context.Context) error {
	return errors.Join(
		removeAll(ctx, d.backend.Endpoints, func(g cluster.EndpointGroup) bool { return g.Node == d.id }),
		removeAll(ctx, d.backend.Networks, func(n cluster.NodeNetwork) bool { return n.Node == d.id }),
	)
}

func removeAll[T any](ctx context.Context, records cluster.Published[T], of func(T) bool) error {
	for item, err := range cluster.Readable(records.All(ctx)) {
		if err == nil && of(item) {
			err = records.Delete(ctx, item)
		}
		if err != nil && !errors.Is(err, cluster.ErrConflict) {
			return fmt.Errorf("delete what the node has published: %w", err)
		}
	}
	return nil
}

// deleteBlocks deletes the claims of the node. It lists them before it reads the node's record, so it deletes none that
// the agent of an active node has made after that.
func (d *nodeDeletion) deleteBlocks(ctx context.Context) error {
	blocks, err := d.blocks(ctx)
	if err != nil {
		return err
	}
	_, err = d.checkReleasing(ctx)
	if err := errors.Join(d.checkNotRestored(ctx), err, d.checkUnused(ctx)); err != nil {
		return err
	}
	return d.remove(ctx, blocks)
}

// blocks lists the blocks of the node. It leaves out unreadable ones: no node claims them either.
func (d *nodeDeletion) blocks(ctx context.Context) (blocks []cluster.Block, err error) {
	for b, err := range cluster.Readable(d.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: d.id})) {
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// remove deletes these claims, and none that a node has made since.
func (d *nodeDeletion) remove(ctx context.Context, blocks []cluster.Block) error {
	for _, b := range blocks {
		if err := d.backend.Blocks.Delete(ctx, b.CIDR, b.Claim); err != nil && !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
	return nil
}

// recordRemoved notes that the node was deleted, before its record goes: its absence is no loss.
func (d *nodeDeletion) recordRemoved(ctx context.Context) error {
	if d.began.ID == "" {
		_, err := d.backend.Info.Put(ctx, cluster.ClusterInfo{ID: rand.Text()})
		if err != nil && !errors.Is(err, cluster.ErrExists) {
			return fmt.Errorf("make the record of the cluster: %w", err)
		}
	}
	return changeInfo(ctx, d.backend.Info, func(info *cluster.ClusterInfo) error {
		if !slices.Contains(info.Removed, d.id.Key) {
			info.RecordRemovedNode(d.id)
		}
		return nil
	})
}
