package multipool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
)

// Status is what the node holds, as of the end of the last round. It is a value.
type Status struct {
	Node      cluster.NodeID
	Connected bool              // the store knows the node, and its blocks were reconciled with the store
	Contested error             // another machine has the node's key; nil when none has
	Recovery  *cluster.Recovery // nil when none is under way
	Written   bool              // the node has written its claims in it
	// RecoveryRequested says that a recovery is to begin when the store answers.
	RecoveryRequested bool
	Blocks            []BlockStatus

	noPool  bool                // the store has none
	blocked error               // why the node claims nothing; nil when it does
	full    map[poolFamily]bool // pools of which the node has found no free block
}

// BlockStatus is a block of the node.
type BlockStatus struct {
	CIDR       string
	Pool       string
	Claim      string
	State      string // owned, claiming, released, conflict or reclaiming
	OtherOwner string // of a conflict: the node that owns the block
}

// Status returns what the node holds. It does not block.
func (c *Controller) Status() Status { return *c.status.Load() }

// publish updates the status.
func (c *Controller) publish() {
	s := Status{
		Node: c.checkpoint.Node, Connected: c.session.connected, Contested: c.session.contested, Recovery: c.history.info.Recovery,
		Written: c.session.current.HasWritten(c.history.info), RecoveryRequested: c.checkpoint.RecoveryRequested,
		noPool: c.blocked == nil && c.session.connected && len(c.pools.byName) == 0, blocked: c.blocked, full: c.searcher.searches.recentlyFull(),
	}
	for _, b := range c.checkpoint.Blocks {
		s.Blocks = append(s.Blocks, BlockStatus{b.CIDR.String(), b.Pool, b.Claim, string(b.State), b.OtherOwner})
	}
	slices.SortFunc(s.Blocks, func(a, b BlockStatus) int { return slices.Compare([]byte(a.CIDR), []byte(b.CIDR)) })
	c.status.Store(&s)
	c.publishOwned()
	c.meters.publish(s)
}

// owned are the blocks that other nodes are told of.
type owned struct {
	node   cluster.NodeID // without a key until the store knows the node
	blocks []netip.Prefix
}

// Blocks returns the ID of this node, without a key until the store knows it, and the blocks of which addresses may be in use here, and
// a channel that is closed when either changes.
func (c *Controller) Blocks() (cluster.NodeID, []netip.Prefix, <-chan struct{}) {
	o, changed := c.owned.Get()
	return o.node, o.blocks, changed
}

// publishOwned leaves out a node whose key another machine has, too: each would tell of its own blocks.
func (c *Controller) publishOwned() {
	var now owned
	if c.session.connected && c.session.contested == nil {
		now.node = c.checkpoint.Node
		for _, b := range c.checkpoint.Blocks {
			if b.State == blockOwned || b.State == blockReclaiming {
				now.blocks = append(now.blocks, b.CIDR)
			}
		}
	}
	if was, _ := c.owned.Get(); was.node != now.node || !slices.Equal(was.blocks, now.blocks) {
		c.owned.Set(now)
	}
}

// reporter is the cell's part of GET /v1/status. It does not ask the store.
type reporter struct{ controller *Controller }

func newReporter(c *Controller) reporter { return reporter{c} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	s := r.controller.Status()
	if s.Recovery != nil {
		status.Recovery = &v1.RecoveryStatus{UnderWay: true, Began: s.Recovery.Began, Reason: s.Recovery.Reason, Unwritten: !s.Written}
	}
	if s.RecoveryRequested {
		status.Recovery = cmp.Or(status.Recovery, &v1.RecoveryStatus{})
		status.Recovery.Requested = true
	}
	for _, b := range s.Blocks {
		if b.State != string(blockConflict) {
			continue
		}
		conflict := v1.BlockConflict{Pool: b.Pool, Owner: b.OtherOwner}
		conflict.CIDR, _ = netip.ParsePrefix(b.CIDR)
		if _, err := cluster.ParseNodeID(b.OtherOwner); err != nil { // its record cannot be read
			conflict.Owner = ""
		}
		status.Conflicts = append(status.Conflicts, conflict)
	}
}

// source says in porin status what the node lacks for the next ADD. The CNI verb STATUS does not fail for that.
type source struct{ controller *Controller }

// Resources implements [capacity.Source]. The allocator counts the addresses of the node's blocks; source says that the
// node claims more when they are used up, unless it knows that it cannot.
func (s source) Resources() []capacity.Resource {
	c := s.controller
	status := c.Status()
	list := []capacity.Resource{{Name: "node-key", Err: status.Contested, Finding: findingNodeContested}}
	for _, pool := range c.addresses.allocator.Usage().Pools {
		has, free := [len(cluster.Families)]bool{}, [len(cluster.Families)]int64{}
		for _, b := range pool.Blocks {
			if f := cluster.FamilyOf(b.Prefix.Addr()); !b.Drained {
				has[f], free[f] = true, free[f]+b.Free
			}
		}
		for _, f := range cluster.Families {
			if !has[f] {
				continue
			}
			err := status.noBlockReason(poolFamily{pool.Name, f})
			r := capacity.Resource{Name: capacity.Addresses(pool.Name, f.String()), Refilled: err == nil}
			if free[f] == 0 {
				r.Err = err
			}
			list = append(list, r)
		}
	}
	return list
}

// noBlockReason says why the node gets no block of the pool, as far as it knows; nil when it does, or has not tried of late.
func (s Status) noBlockReason(at poolFamily) error {
	if s.blocked != nil {
		return s.blocked
	}
	if s.full[at] {
		return fmt.Errorf("pool %s, %s: %w", at.pool, at.family, ErrNoBlock)
	}
	return nil
}
