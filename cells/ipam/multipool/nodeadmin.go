package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// The errors of what people ask of nodes.
var (
	ErrNoNode = fault.New(fault.NotFound, "no such node")
	// ErrConnected is returned when the agent of a node that is to be deleted has blocks and objects.
	ErrConnected = fault.New(fault.Conflict, "the node's agent is connected and has blocks: delete the node's pods, or stop the machine and say that it is off")
	// ErrSilent is returned when the agent of a node that is to be deleted does not answer.
	ErrSilent = fault.New(fault.Unavailable, "the node's agent does not answer, and its pods may run: make sure that the machine is off, and say so with --machine-is-off")
)

// NodeAdmin lists and deletes nodes.
type NodeAdmin struct {
	backend cluster.Backend
	// Wait is how long an agent has to agree to the deletion of its node.
	Wait time.Duration
	// RecordDelay is how long the record of a deleted node stays after its blocks; negative: the longest quarantine of their pools.
	RecordDelay time.Duration
}

// NewNodeAdmin returns who administers the nodes of a cluster.
func NewNodeAdmin(b cluster.Backend) *NodeAdmin { return &NodeAdmin{b, 5 * time.Second, -1} }

// NodeStatus is what the store says of a node.
type NodeStatus struct {
	Node    cluster.Node
	Session *cluster.Session // nil when no agent has ever begun one
	Blocks  []cluster.Block
}

// NodeUnreadable is the state of a node in a list whose record cannot be read.
const NodeUnreadable cluster.NodeState = "unreadable"

// List returns all incarnations of all nodes, by name. Sessions and blocks that cannot be read are left out.
func (a *NodeAdmin) List(ctx context.Context) ([]NodeStatus, error) {
	nodes := map[cluster.NodeID]*NodeStatus{}
	for n, err := range a.backend.Nodes.All(ctx) {
		if errors.Is(err, cluster.ErrUnreadable) {
			n.State, err = NodeUnreadable, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		nodes[n.ID] = &NodeStatus{Node: n}
	}
	for s, err := range readable(a.backend.Sessions.All(ctx)) {
		if err != nil {
			return nil, fmt.Errorf("list the sessions: %w", err)
		}
		if n := nodes[s.Node]; n != nil {
			n.Session = &s
		}
	}
	for b, err := range readable(a.backend.Blocks.All(ctx, cluster.BlockFilter{})) {
		if err != nil {
			return nil, fmt.Errorf("list the blocks: %w", err)
		}
		if nodes[b.Owner] == nil { // its node was deleted while it was claimed
			nodes[b.Owner] = &NodeStatus{Node: cluster.Node{ID: b.Owner}}
		}
		nodes[b.Owner].Blocks = append(nodes[b.Owner].Blocks, b)
	}
	list := make([]NodeStatus, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, *n)
	}
	sortNodes(list)
	return list, nil
}

// readable leaves out the records that cannot be read.
func readable[T any](list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range list {
			if !errors.Is(err, cluster.ErrUnreadable) && !yield(item, err) {
				return
			}
		}
	}
}

// ListRecords is List of the nodes' records alone: it reads no blocks.
func (a *NodeAdmin) ListRecords(ctx context.Context) (list []NodeStatus, err error) {
	for n, err := range readable(a.backend.Nodes.All(ctx)) {
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		list = append(list, NodeStatus{Node: n})
	}
	sortNodes(list)
	return list, nil
}

func sortNodes(list []NodeStatus) {
	slices.SortFunc(list, func(a, b NodeStatus) int { return strings.Compare(a.Node.ID.String(), b.Node.ID.String()) })
}

// Find returns the incarnation with the key, or the only one of the name when the key is "".
func (a *NodeAdmin) Find(ctx context.Context, name, key string) (found cluster.Node, err error) {
	var keys []string
	for n, err := range readable(a.backend.Nodes.All(ctx)) {
		if err != nil {
			return found, fmt.Errorf("list the nodes: %w", err)
		}
		if n.ID.Name == name && (key == "" || n.ID.Key == key) {
			found, keys = n, append(keys, n.ID.Key)
		}
	}
	switch len(keys) {
	case 0:
		if key != "" {
			return found, fmt.Errorf("node %.64q with key %.64q: %w", name, key, ErrNoNode)
		}
		return found, fmt.Errorf("node %.64q: %w", name, ErrNoNode)
	case 1:
		return found, nil
	}
	return found, fault.New(fault.Invalid, fmt.Sprintf("node %s has %d incarnations: say which: %s", name, len(keys), strings.Join(keys, ", ")))
}

// Delete deletes the node's blocks, so that other nodes can claim them, waits RecordDelay, deletes claims that arrived meanwhile, and then
// the node's record. After an interruption it can be called again; the delay is 0 if no block is left. The node's agent must agree, which
// it does when it has no block. machineOff says that the machine is off and will not come back: then nobody is asked. Should it come back
// after all, it goes on as a new incarnation, and what its pods use may be in use elsewhere.
func (a *NodeAdmin) Delete(ctx context.Context, id cluster.NodeID, machineOff bool) error {
	if err := a.delete(ctx, id, machineOff); err != nil {
		return fmt.Errorf("delete node %s: %w", id, err)
	}
	return nil
}

func (a *NodeAdmin) delete(ctx context.Context, id cluster.NodeID, machineOff bool) error {
	began, position, err := a.backend.Info.Get(ctx)
	if err != nil {
		return err
	}
	unchanged := func() error { // a store that was restored meanwhile has other claims
		now, p, err := a.backend.Info.Get(ctx)
		if err == nil && (now.ID != began.ID || now.Epoch != began.Epoch || p.Before(position)) {
			err = ErrRecovery
		}
		return err
	}
	if err := a.markReleasing(ctx, id, machineOff); err != nil {
		return err
	}
	delay, err := a.recordDelay(ctx, id)
	if err != nil {
		return err
	}
	for _, wait := range []time.Duration{delay, 0} { // a second time for a claim that was under way
		if err := a.deleteBlocks(ctx, id, unchanged); err != nil {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	if err := errors.Join(unchanged(), a.checkReleasing(ctx, id)); err != nil {
		return err
	}
	if err := a.noteRemoved(ctx, id); err != nil {
		return err
	}
	if err := a.backend.Sessions.Delete(ctx, id); err != nil {
		return err
	}
	n, err := a.backend.Nodes.Get(ctx, id)
	if errors.Is(err, cluster.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.backend.Nodes.Delete(ctx, n)
}

// recordDelay is RecordDelay, or the longest quarantine of the pools of which the node has blocks.
func (a *NodeAdmin) recordDelay(ctx context.Context, id cluster.NodeID) (longest time.Duration, err error) {
	if a.RecordDelay >= 0 {
		return a.RecordDelay, nil
	}
	for b, err := range readable(a.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: id})) {
		if err != nil {
			return 0, err
		}
		p, err := a.backend.Pools.Get(ctx, b.Pool)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			return 0, err
		}
		longest = max(longest, p.Quarantine)
	}
	return longest, nil
}

// markReleasing has the node claim nothing any more, and waits until its agent agrees unless the machine is off.
func (a *NodeAdmin) markReleasing(ctx context.Context, id cluster.NodeID, machineOff bool) error {
	session, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	n, err := a.backend.Nodes.Get(ctx, id)
	if errors.Is(err, cluster.ErrNotFound) {
		return ErrNoNode
	}
	if err != nil {
		return err
	}
	n.State, n.MachineOff, n.Agreed, n.Objection = cluster.NodeReleasing, machineOff, false, ""
	if n, err = a.backend.Nodes.Update(ctx, n); err != nil {
		return err
	}
	if machineOff {
		if now, err := a.session(ctx, id); err != nil || now != session { // an agent has started: it is not off
			n.State, n.MachineOff = cluster.NodeActive, false
			_, undo := a.backend.Nodes.Update(ctx, n)
			return errors.Join(ErrConnected, err, undo)
		}
		return nil
	}
	for end := time.Now().Add(a.Wait); time.Now().Before(end); {
		if err := sleep(ctx, a.Wait/100); err != nil {
			return err
		}
		switch now, err := a.backend.Nodes.Get(ctx, id); {
		case err == nil && now.State == cluster.NodeActive:
			return errObjected(now)
		case err == nil && now.Agreed:
			return nil
		}
	}
	if now, err := a.backend.Nodes.Get(ctx, id); err == nil && now.State == cluster.NodeReleasing && !now.Agreed {
		now.State = cluster.NodeActive
		_, err = a.backend.Nodes.Update(ctx, now)
		return errors.Join(ErrSilent, err)
	}
	return ErrSilent
}

// session is the ID of the node's session; "" when it has none.
func (a *NodeAdmin) session(ctx context.Context, id cluster.NodeID) (string, error) {
	s, err := a.backend.Sessions.Get(ctx, id)
	if errors.Is(err, cluster.ErrNotFound) {
		return "", nil
	}
	return s.ID, err
}

// checkReleasing returns [ErrConnected] when the node's agent has objected.
func (a *NodeAdmin) checkReleasing(ctx context.Context, id cluster.NodeID) error {
	n, err := a.backend.Nodes.Get(ctx, id)
	if err == nil && n.State != cluster.NodeReleasing {
		err = errObjected(n)
	}
	return err
}

// shownReservations bounds how many an objection names: it is in a record that everybody watches.
const shownReservations = 10

// objection is what an agent says when it objects to the deletion of its node; "" when nothing is reserved there.
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

// errObjected is [ErrConnected] with what the agent said.
func errObjected(n cluster.Node) error {
	if n.Objection == "" {
		return ErrConnected
	}
	return fmt.Errorf("%w; %s", ErrConnected, n.Objection)
}

// deleteBlocks deletes the claims of the node. It lists them before it looks whether the agent has objected, so it deletes none that the
// agent has made after that. It leaves one that cannot be read: nobody claims it either.
func (a *NodeAdmin) deleteBlocks(ctx context.Context, id cluster.NodeID, unchanged func() error) error {
	var blocks []cluster.Block
	for b, err := range readable(a.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: id})) {
		if err != nil {
			return err
		}
		blocks = append(blocks, b)
	}
	if err := errors.Join(unchanged(), a.checkReleasing(ctx, id)); err != nil {
		return err
	}
	for _, b := range blocks {
		if err := a.backend.Blocks.Delete(ctx, b.CIDR, b.Claim); err != nil && !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
	return nil
}

// noteRemoved says that the node's absence is no loss, before its record goes.
func (a *NodeAdmin) noteRemoved(ctx context.Context, id cluster.NodeID) error {
	return a.changeInfo(ctx, func(r *cluster.Record) error {
		if !slices.Contains(r.Removed, id.Key) {
			r.Remove(id)
		}
		return nil
	})
}

// Reset ends the contest of two machines for one node's key, after the copy was given a key of its own. The agent that remains goes on.
func (a *NodeAdmin) Reset(ctx context.Context, id cluster.NodeID) error {
	if err := a.backend.Sessions.Delete(ctx, id); err != nil {
		return fmt.Errorf("reset node %s: %w", id, err)
	}
	return nil
}

// BeginRecovery marks that the store was restored from a backup, or begun anew. It is a step of every restore.
func (a *NodeAdmin) BeginRecovery(ctx context.Context) error {
	_, _, err := a.backend.Info.Get(ctx)
	if errors.Is(err, cluster.ErrNotFound) { // it is empty; the agents have known another one
		_, err = a.backend.Info.Put(ctx, cluster.Record{ID: rand.Text()})
	}
	if err != nil && !errors.Is(err, cluster.ErrExists) {
		return fmt.Errorf("begin a recovery: %w", err)
	}
	return a.changeInfo(ctx, func(r *cluster.Record) error {
		r.Epoch++
		r.Recovery = &cluster.Recovery{Began: time.Now().UTC(), Reason: "an administrator said so"}
		return nil
	})
}

// Exclude has the recovery not wait for a node. Addresses that are in use there may be given out a second time.
func (a *NodeAdmin) Exclude(ctx context.Context, id cluster.NodeID) error {
	return a.changeInfo(ctx, func(r *cluster.Record) error {
		if r.Recovery == nil {
			return fault.New(fault.Conflict, "no recovery is under way")
		}
		if recovery := *r.Recovery; !slices.Contains(recovery.Excluded, id.String()) {
			recovery.Excluded = append(slices.Clone(recovery.Excluded), id.String())
			r.Recovery = &recovery // what was read is not changed: others may have it
		}
		return nil
	})
}

// changeInfo changes the record of the cluster from what it is at that very moment.
func (a *NodeAdmin) changeInfo(ctx context.Context, change func(*cluster.Record) error) error {
	for {
		r, _, err := a.backend.Info.Get(ctx)
		if err == nil {
			if err = change(&r); err == nil {
				_, err = a.backend.Info.Put(ctx, r)
			}
		}
		if !errors.Is(err, cluster.ErrConflict) || fault.KindOf(err) == fault.Internal {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
