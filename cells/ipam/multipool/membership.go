package multipool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// membership makes this node a member of the cluster: it registers the node's record, answers when an administrator
// deletes it, and takes part in recoveries of the store.
type membership struct {
	*common
	reconciler *reconciler

	reconciled string // the last recovery in which [reconciler.reconcileUnknownBlocks] has run
}

// connect makes sure that the store knows this node, that this agent is the node's only one, and that the node's blocks
// agree with the store. Nothing is claimed before. It does so again when the store was rolled back, or a recovery has
// begun or ended.
func (m *membership) connect(ctx context.Context) error {
	if m.session.connected {
		if m.session.contested != nil {
			return m.session.contested
		}
		if changed, err := m.history.check(ctx); !changed {
			return err
		}
		m.session.reconnect()
	}
	if m.checkpoint.isAnotherMachine(m.checkpoint.Machine) {
		return m.startAsNewMachine()
	}
	if err := m.history.read(ctx); err != nil {
		return err
	}
	n, err := m.readNode(ctx)
	if err != nil {
		return err
	}
	if err := m.session.begin(ctx, m.reconciler.findOtherOwners); err != nil {
		return err
	}
	if err := m.register(ctx, n); err != nil {
		return err
	}
	if err := m.reconciler.reconcileBlocks(ctx); err != nil {
		return err
	}
	m.checkpoint.changed = m.checkpoint.changed || m.checkpoint.rebooted
	m.session.connected, m.checkpoint.rebooted = true, false
	return nil
}

// readNode returns the node's record, or nil when the store has none. Its error says why this agent cannot continue as
// that node.
func (m *membership) readNode(ctx context.Context) (*cluster.Node, error) {
	ck := m.checkpoint
	n, err := m.backend.Nodes.Get(ctx, ck.Node)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return nil, m.nodeMissing(ctx)
	case err != nil:
		return nil, fmt.Errorf("read the record of node %s: %w", ck.Node, err)
	case m.checkpoint.isAnotherMachine(n.MachineID): // the checkpoint was lost
		return nil, m.startAsNewMachine()
	case n.State == cluster.NodeReleasing: // the blocks may be deleted by now
		return nil, m.startNewIncarnation("an administrator has deleted the node and said that its machine is off")
	}
	return &n, nil
}

// nodeMissing returns nil when a node without a record may register. One that was deleted may not.
func (m *membership) nodeMissing(ctx context.Context) error {
	ck, info := m.checkpoint, m.history.info
	if ck.Registered {
		now, _, err := m.backend.Info.Get(ctx) // read after the node: who deletes a node says so before
		if err != nil {
			return fmt.Errorf("read the record of the cluster: %w", err)
		}
		info = now
	}
	switch {
	case slices.Contains(info.Removed, ck.Node.Key):
		return m.startNewIncarnation("an administrator has deleted the node")
	case !ck.Registered && m.kubernetes.deleted:
		return ErrNodeDeleted
	case !ck.Registered:
		return nil
	case m.kubernetes.createdAgain():
		return m.startNewIncarnation("its Kubernetes Node was created again, and the node's record is gone")
	}
	return errors.Join(m.history.reportLost(ctx, "the record of node "+ck.Node.String()+" is gone"), m.blocks.releaseAfterBoot("the node's record is gone"))
}

// register makes sure that the store has the node's record. The session is written before it, so that a deletion of
// another node sees the conflicts that the session names.
func (m *membership) register(ctx context.Context, read *cluster.Node) (err error) {
	ck := m.checkpoint
	var n cluster.Node
	if read == nil {
		n, err = m.backend.Nodes.Create(ctx, cluster.Node{
			ID: ck.Node, State: cluster.NodeActive, MachineID: m.checkpoint.machine, Created: time.Now().UTC(), NodeUID: m.kubernetes.uid,
		})
	} else {
		n = *read
	}
	next := n
	if !m.checkpoint.rebooted { // it is the machine that it was
		next.MachineID = m.checkpoint.machine
	}
	if m.kubernetes.created() {
		next.NodeUID = m.kubernetes.uid
	}
	if err == nil && !n.Deleting && next != n {
		_, err = m.backend.Nodes.Update(ctx, next)
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", ck.Node, err)
	}
	ck.changed = ck.changed || ck.NodeUID != next.NodeUID
	ck.NodeUID = next.NodeUID
	if !ck.Registered {
		m.reconciler.unknownDue = true // the checkpoint may have been lost
		ck.Registered = true
		return m.checkpoint.save()
	}
	return nil
}

// changed reports whether the node's record says something new. first is true for the first snapshot of the watch.
func (m *membership) changed(change cluster.Change[cluster.Node], first bool) bool {
	own := m.checkpoint.Node
	switch change.Kind {
	case cluster.Snapshot:
		i := slices.IndexFunc(change.All, func(n cluster.Node) bool { return n.ID == own })
		return i >= 0 && change.All[i].State != cluster.NodeActive || i < 0 && m.checkpoint.Registered && !first
	case cluster.Put:
		return change.Name == own.RecordName() && change.Item.State != cluster.NodeActive
	}
	return change.Name == own.RecordName()
}

// verify reads the node's record and session, and the record of the cluster again after a claim. It returns why the
// claim must be withdrawn.
func (m *membership) verify(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			m.session.reconnect()
		}
	}()
	n, err := m.backend.Nodes.Get(ctx, m.checkpoint.Node)
	if err != nil {
		return err
	}
	if n.State != cluster.NodeActive || n.Deleting {
		return ErrReleasing
	}
	if err := m.session.verify(ctx); err != nil {
		return err
	}
	return m.history.verify(ctx)
}

// joinRecovery returns [ErrRecovery] while the mark stands. It records in the session that the node has written its
// claims, in a later round if addresses are in use of blocks that other nodes own or could claim.
func (m *membership) joinRecovery(ctx context.Context) error {
	info := m.history.info
	switch {
	case info.Recovery == nil:
		return nil
	case m.session.current.HasWritten(info):
		return ErrRecovery
	case m.reconciled != info.Recovery.ID:
		if err := m.reconciler.reconcileUnknownBlocks(ctx); err != nil {
			return err
		}
		m.reconciled = info.Recovery.ID
	}
	if m.pools.complete && !m.blocks.hasUnownedBlocks() && !m.blocks.usesOverlappingBlock() {
		err := m.session.update(ctx, func(next *cluster.Session) { next.Recovery, next.Contact = info.Recovery.ID, time.Now().UTC() })
		if err != nil {
			return fmt.Errorf("record that node %s has written its blocks: %w", m.checkpoint.Node, err)
		}
	}
	return ErrRecovery
}

// startAsNewMachine continues as a new incarnation, and leaves the blocks of the old one to the machine whose disk was
// copied.
func (m *membership) startAsNewMachine() error {
	for _, b := range slices.Clone(m.checkpoint.Blocks) {
		if m.addresses.Remove(b.Pool, b.CIDR) == nil { // nothing of it is in use
			m.checkpoint.remove(b.CIDR)
		}
	}
	m.checkpoint.Machine = m.checkpoint.machine
	return m.startNewIncarnation("its disk was copied from a machine with another machine-id, or moved, or the machine-id has changed")
}

// startNewIncarnation continues with another key. The new incarnation claims the blocks with addresses in use.
func (m *membership) startNewIncarnation(why string) error {
	was := m.checkpoint.Node
	m.blocks.resetOwnership()
	if err := m.checkpoint.newIncarnation(); err != nil {
		return fmt.Errorf("give the node another key: %w", err)
	}
	m.log.Error("the node continues as a new incarnation", "reason", why, "was", was.String(), "node", m.checkpoint.Node.String())
	m.session.connected, m.session.current, m.session.contested = false, cluster.Session{}, nil
	m.history.info = cluster.ClusterInfo{}
	return fmt.Errorf("%s: it continues as %s", why, m.checkpoint.Node)
}
