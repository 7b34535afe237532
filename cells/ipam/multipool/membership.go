package multipool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/cluster"
)

// membership makes this node a member of the cluster: it registers the node's record, and answers when an administrator
// deletes it.
type membership struct {
	backend    cluster.Backend
	checkpoint *checkpoint
	blocks     *ownBlocks
	history    *storeHistory
	session    *session
	losses     *lossDetector
	reconciler *reconciler
	log        *slog.Logger
}

// connect makes sure that the store knows this node, that this agent is the node's only one, and that the node's blocks
// agree with the store. Nothing is claimed before.
func (m *membership) connect(ctx context.Context) error {
	if m.session.connected {
		return m.session.contested
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
	if err := m.losses.detectLostNodes(ctx); err != nil {
		return err
	}
	if err := m.reconciler.reconcileBlocks(ctx); err != nil {
		return err
	}
	m.checkpoint.changed = m.checkpoint.changed || m.checkpoint.rebooted
	m.session.connected, m.checkpoint.rebooted = true, false
	return nil
}

// checkStore connects again when the store was rolled back.
func (m *membership) checkStore(ctx context.Context) error {
	rolledBack, err := m.history.check(ctx)
	if rolledBack {
		m.session.reconnect()
		return m.connect(ctx)
	}
	return err
}

// readNode returns the node's record, or nil when the store has none. Its error says why this agent cannot continue as that node.
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
	case n.State == cluster.NodeReleasing:
		return nil, m.answerDeletion(ctx, n)
	}
	return &n, nil
}

// nodeMissing returns nil when a node without a record may register. One that was deleted may not: no recovery waits for it.
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
	case !ck.Registered:
		return nil
	}
	return errors.Join(m.history.reportLost(ctx, "the record of node "+ck.Node.String()), m.blocks.releaseAfterBoot("the node's record is gone"))
}

// register makes sure that the store has the node's record. The session is written before it, so that a deletion of
// another node sees the conflicts that the session names.
func (m *membership) register(ctx context.Context, read *cluster.Node) (err error) {
	ck := m.checkpoint
	var n cluster.Node
	if read == nil {
		n, err = m.backend.Nodes.Create(ctx, cluster.Node{ID: ck.Node, State: cluster.NodeActive, MachineID: m.checkpoint.machine, Created: time.Now().UTC()})
	} else {
		n = *read
	}
	if err == nil && !n.Deleting && (n.Reporter != "" || !m.checkpoint.rebooted && n.MachineID != m.checkpoint.machine) {
		n.Reporter = ""
		if !m.checkpoint.rebooted { // so it is the machine that it was
			n.MachineID = m.checkpoint.machine
		}
		n, err = m.backend.Nodes.Update(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", ck.Node, err)
	}
	if !ck.Registered {
		m.reconciler.unknownDue = true // the checkpoint may have been lost
		ck.Registered = true
		return m.checkpoint.save()
	}
	return nil
}

// answerDeletion agrees to the deletion of this node when it has no block and no address is in use, and else objects.
// When the administrator has said that the machine is off, the blocks may be deleted by now: the node continues as a
// new incarnation.
func (m *membership) answerDeletion(ctx context.Context, n cluster.Node) error {
	switch {
	case n.MachineOff:
		return m.startNewIncarnation("an administrator has deleted the node and said that its machine is off")
	case n.Deleting:
		return ErrReleasing
	case len(m.checkpoint.Blocks) > 0 || len(m.blocks.addresses.inUse()) > 0:
		n.State, n.Agreed, n.Objection = cluster.NodeActive, false, objection(m.blocks.addresses.reservations())
	case n.Agreed:
		return ErrReleasing
	default:
		n.Agreed = true
	}
	if _, err := m.backend.Nodes.Update(ctx, n); err != nil {
		return fmt.Errorf("answer to the deletion of node %s: %w", n.ID, err)
	}
	return ErrReleasing // the next round reads the record again
}

// shownReservations bounds how many reservations an objection names: it is in a record that everybody watches.
const shownReservations = 10

// objection is the text of an objection to a deletion; "" when nothing is reserved on the node.
func objection(reservations []string) string {
	if len(reservations) == 0 {
		return ""
	}
	text := strings.Join(reservations[:min(len(reservations), shownReservations)], ", ")
	if more := len(reservations) - shownReservations; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "reserved there, which porin ipam release ends on that node: " + text
}

// verify reads the node's record and session, and the record of the cluster again after a claim. It returns why the
// claim must be withdrawn.
func (m *membership) verify(ctx context.Context) error {
	n, err := m.backend.Nodes.Get(ctx, m.checkpoint.Node)
	if err != nil {
		m.session.reconnect()
		return err
	}
	if n.State != cluster.NodeActive || n.Deleting {
		m.session.reconnect()
		return ErrReleasing
	}
	if err := m.session.verify(ctx); err != nil {
		return err
	}
	if err := m.history.verify(ctx); err != nil {
		m.session.reconnect()
		return err
	}
	return nil
}

// startAsNewMachine continues as a new incarnation, and leaves the blocks of the old one to the machine whose disk was copied.
func (m *membership) startAsNewMachine() error {
	m.blocks.forgetUnused()
	m.checkpoint.Machine = m.checkpoint.machine
	return m.startNewIncarnation("its disk was copied from a machine with another machine-id, or moved, or the machine-id has changed")
}

// startNewIncarnation continues with another key. The new incarnation claims the blocks with addresses in use.
func (m *membership) startNewIncarnation(why string) error {
	was := m.checkpoint.Node
	m.blocks.disown()
	if err := m.checkpoint.newIncarnation(); err != nil {
		return fmt.Errorf("give the node another key: %w", err)
	}
	m.log.Error("the node continues as a new incarnation", "reason", why, "was", was.String(), "node", m.checkpoint.Node.String())
	m.session.reset()
	m.history.info = cluster.ClusterInfo{}
	return fmt.Errorf("%s: it continues as %s", why, m.checkpoint.Node)
}
