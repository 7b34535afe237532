package multipool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// The errors that callers tell apart.
var (
	// ErrContested is returned when another machine has the key of this node.
	ErrContested = fault.WithHint(fault.New(fault.Conflict, "another machine has this node's key"), "") // the errors that wrap it say what to do
	// ErrRecovery is returned during a recovery, in which no node claims blocks.
	ErrRecovery = fault.WithHint(fault.New(fault.Unavailable, "a recovery of the cluster's store is under way: no node claims a block before an administrator ends it"), hintRecovery)
	// ErrReleasing is returned while an administrator deletes the node.
	ErrReleasing = fault.WithHint(fault.New(fault.Unavailable, "an administrator deletes this node"), hintReleasing)
	// ErrNodeDeleted is returned while the Kubernetes Node of this node is deleted.
	ErrNodeDeleted = fault.WithHint(fault.New(fault.Unavailable, "the Kubernetes Node of this node was deleted"), hintNodeDeleted)
	// ErrNoBlock is returned when nodes have claimed every block of a pool.
	ErrNoBlock = fault.New(fault.Exhausted, "no free block")
)

// What to do about an ADD that gets no address.
const (
	hintStore        = "find out why the store does not answer: see porin doctor"
	hintRecovery     = "see porin ipam recover; --end ends it when every node has written its blocks"
	hintNodeDeleted  = "restart the kubelet, which creates the Node again, or end the agent"
	hintReleasing    = "see porin node list"
	hintNoBlock      = "make the pool larger with porin pool set, or see porin node list for nodes that are gone"
	hintNoBlockAlone = "make the pool larger with porin pool set, or remove pods from this node"
)

// whyNotClaimable says why a node with these labels gets no block of the pool, or nil.
func whyNotClaimable(p cluster.Pool, labels map[string]string) error {
	switch {
	case p.Claimable(labels):
		return nil
	case p.Disabled:
		return fault.WithHint(fault.New(fault.Invalid, fmt.Sprintf("pool %s is disabled", p.Name)),
			"enable it with porin pool set --disabled=false, or have the pod use another pool")
	case p.State != cluster.PoolAccepted || p.Deleting:
		return fault.WithHint(fault.New(fault.Unavailable, fmt.Sprintf("pool %s is %s", p.Name, p.State)), "see porin pool get")
	}
	var wanted []string
	for _, key := range slices.Sorted(maps.Keys(p.NodeSelector)) {
		wanted = append(wanted, key+"="+p.NodeSelector[key])
	}
	return fault.WithHint(fault.New(fault.Invalid, fmt.Sprintf("pool %s is not for this node: it is for nodes with %s", p.Name, strings.Join(wanted, ","))),
		"give the node that label with kubectl label, or without Kubernetes with --node-labels of its agent, or have the pod use another pool")
}
