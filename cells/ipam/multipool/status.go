package multipool

import (
	"slices"

	"porin.dev/porin/cells/cluster"
)

// Status is what the node holds, as of the end of the last round. It is a value.
type Status struct {
	Node      cluster.NodeID
	Connected bool  // the store knows the node, and its blocks were compared with the store
	Cloned    error // another machine has the node's key; nil when none has
	Epoch     uint64
	Recovery  *cluster.Recovery // nil when none is under way
	Blocks    []BlockStatus
}

// BlockStatus is a block of the node.
type BlockStatus struct {
	CIDR  string
	Pool  string
	Claim string
	State string // owned, claiming, released, conflict or reclaiming
	Rival string // of a conflict: the node that owns the block
}

// Status returns what the node holds. It does not block.
func (c *Controller) Status() Status { return *c.status.Load() }

func (c *Controller) publish() {
	s := Status{
		Node: c.checkpoint.Node, Connected: c.self.connected, Cloned: c.self.cloned, Epoch: c.self.info.Epoch, Recovery: c.self.info.Recovery,
	}
	for _, b := range c.checkpoint.Blocks {
		s.Blocks = append(s.Blocks, BlockStatus{b.CIDR.String(), b.Pool, b.Claim, string(b.State), b.Rival})
	}
	slices.SortFunc(s.Blocks, func(a, b BlockStatus) int { return slices.Compare([]byte(a.CIDR), []byte(b.CIDR)) })
	c.status.Store(&s)
	c.meters.publish(s)
}
