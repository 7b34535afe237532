package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// The errors of what people ask of nodes.
var (
	ErrNoNode = fault.New(fault.NotFound, "no such node")
	// ErrMachineMayRun is returned when the administrator has not confirmed that the node's machine is off.
	ErrMachineMayRun = fault.New(fault.Conflict, "its pods may run: stop its machine, and say so with --machine-is-off")
	// ErrMachineRuns is returned when an agent begins on a machine that is said to be off.
	ErrMachineRuns = fault.New(fault.Conflict, "an agent of the node has started meanwhile, so its machine is not off: stop it and try again")
	// ErrBlocksInUse is returned when another node has addresses in use of blocks of the node that is to be deleted.
	ErrBlocksInUse = fault.New(fault.Conflict, "another node uses addresses of this node's blocks, which could be given out a second time: "+
		"delete the pods that use them on the other node; or run porin ipam recover --begin first, and the other node claims the blocks; "+
		"or, if the other node is gone, delete that one first")
	// ErrConflictsUnknown is returned when the session of another node cannot be read: it may name a conflict, as
	// ErrBlocksInUse does.
	ErrConflictsUnknown = fault.New(fault.Conflict, "another node may use addresses of its blocks, which could be given out a second time, as the record of its session cannot be read: "+
		"run this on a node whose agent has the later version that has written it; a record that is damaged delete from the store")
	// ErrRestored is returned when a recovery begins, or the store is restored, while a node is deleted.
	ErrRestored = fault.New(fault.Unavailable, "the store was restored meanwhile, or a recovery has begun: try again")
)

// Nodes lists and deletes nodes.
type Nodes struct {
	backend cluster.Backend
	// RecordDelay is how long the record of a deleted node stays after its blocks; negative: the longest quarantine of
	// their pools.
	RecordDelay time.Duration
}

// NewNodes returns the administration of the nodes of a cluster.
func NewNodes(b cluster.Backend) *Nodes { return &Nodes{b, -1} }

// NodeStatus is what the store says of a node.
type NodeStatus struct {
	Node    cluster.Node
	Session *cluster.Session     // nil when no agent has ever begun one
	Network *cluster.NodeNetwork // nil when its agent has published none
	Blocks  []cluster.Block
}

// NodeUnreadable is the state of a node in a list whose record cannot be read.
const NodeUnreadable cluster.NodeState = "unreadable"

// List returns all incarnations of all nodes, by name. Sessions and blocks that cannot be read are left out.
func (a *Nodes) List(ctx context.Context) ([]NodeStatus, error) {
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
	for s, err := range cluster.Readable(a.backend.Sessions.All(ctx)) {
		if err != nil {
			return nil, fmt.Errorf("list the sessions: %w", err)
		}
		if n := nodes[s.Node]; n != nil {
			n.Session = &s
		}
	}
	for b, err := range cluster.Readable(a.backend.Blocks.All(ctx, cluster.BlockFilter{})) {
		if err != nil {
			return nil, fmt.Errorf("list the blocks: %w", err)
		}
		if nodes[b.Owner] == nil { // its node was deleted while it was claimed
			nodes[b.Owner] = &NodeStatus{Node: cluster.Node{ID: b.Owner}}
		}
		nodes[b.Owner].Blocks = append(nodes[b.Owner].Blocks, b)
	}
	for n, err := range cluster.Readable(a.backend.Networks.All(ctx)) {
		if err != nil {
			return nil, fmt.Errorf("list the networks of nodes: %w", err)
		}
		if nodes[n.Node] == nil { // it has no claims: its prefixes come with its name
			nodes[n.Node] = &NodeStatus{Node: cluster.Node{ID: n.Node, State: cluster.NodeActive}}
		}
		nodes[n.Node].Network = &n
	}
	list := make([]NodeStatus, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, *n)
	}
	sortNodes(list)
	return list, nil
}

// ListRecords is List of the nodes' records alone: it reads no blocks.
func (a *Nodes) ListRecords(ctx context.Context) (list []NodeStatus, err error) {
	for n, err := range cluster.Readable(a.backend.Nodes.All(ctx)) {
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

// Find returns the incarnation with the key, or the only one of the name when the key is "". For a node that has blocks
// and no record it returns the ID alone.
func (a *Nodes) Find(ctx context.Context, name, key string) (found cluster.Node, err error) {
	var keys []string
	for n, err := range cluster.Readable(a.backend.Nodes.All(ctx)) {
		if err != nil {
			return found, fmt.Errorf("list the nodes: %w", err)
		}
		if n.ID.Name == name && (key == "" || n.ID.Key == key) {
			found, keys = n, append(keys, n.ID.Key)
		}
	}
	// One with prefixes of its own has a network, and no other record.
	for n, err := range a.backend.Networks.All(ctx) { // also unreadable ones
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return found, fmt.Errorf("list the networks of nodes: %w", err)
		}
		if n.Node.Name == name && (key == "" || n.Node.Key == key) && !slices.Contains(keys, n.Node.Key) {
			if len(keys) == 0 {
				found.ID = n.Node
			}
			keys = append(keys, n.Node.Key)
		}
	}
	if len(keys) == 0 {
		if found.ID, keys, err = a.findOwner(ctx, name, key); err != nil {
			return found, err
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

// findOwner is Find among the owners of blocks.
func (a *Nodes) findOwner(ctx context.Context, name, key string) (found cluster.NodeID, keys []string, err error) {
	for b, err := range cluster.Readable(a.backend.Blocks.All(ctx, cluster.BlockFilter{})) {
		if err != nil {
			return found, nil, fmt.Errorf("list the blocks: %w", err)
		}
		if b.Owner.Name == name && (key == "" || b.Owner.Key == key) && !slices.Contains(keys, b.Owner.Key) {
			found, keys = b.Owner, append(keys, b.Owner.Key)
		}
	}
	return found, keys, nil
}

// Reset ends the contest of two machines for one node's key, after the copy was given a key of its own. The agent that
// remains goes on.
func (a *Nodes) Reset(ctx context.Context, id cluster.NodeID) error {
	if err := a.backend.Sessions.Delete(ctx, id); err != nil {
		return fmt.Errorf("reset node %s: %w", id, err)
	}
	return nil
}
