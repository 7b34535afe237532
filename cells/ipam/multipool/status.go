package multipool

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/watchable"
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
	Blocks            []OwnBlock

	noPool  bool                  // the store has none
	blocked error                 // why the node claims nothing; nil when it does
	full    map[poolFamily]bool   // pools in which the node has found no free block
	sizes   map[poolFamily]uint64 // blocks of the pools, taken or not
}

// published is what the rounds tell others, who read it at any time.
type published struct {
	status atomic.Pointer[Status]
	owned  watchable.Value[owned]
}

// owned are the blocks that other nodes are told of.
type owned struct {
	node   cluster.NodeID // without a key until the store knows the node
	blocks []netip.Prefix
}

// Status returns what the node holds. It does not block.
func (c *Controller) Status() Status { return *c.rounds.published.status.Load() }

// Blocks returns the ID of this node, without a key until the store knows it, the blocks with addresses that may be in
// use here, and a channel that is closed when either changes.
func (c *Controller) Blocks() (cluster.NodeID, []netip.Prefix, <-chan struct{}) {
	o, changed := c.rounds.published.owned.Get()
	return o.node, o.blocks, changed
}

// publish updates what others read.
func (r *rounds) publish() {
	s, ck := Status{
		Node: r.checkpoint.Node, Connected: r.session.connected, Contested: r.session.contested, Recovery: r.history.info.Recovery,
		Written: r.session.current.HasWritten(r.history.info), RecoveryRequested: r.checkpoint.RecoveryRequested,
		noPool: r.blocked == nil && r.session.connected && len(r.pools.byName) == 0, blocked: r.blocked, full: map[poolFamily]bool{}, sizes: map[poolFamily]uint64{},
	}, r.checkpoint
	for name, p := range r.pools.byName {
		for _, f := range cluster.Families {
			s.sizes[poolFamily{name, f}] = p.Blocks(f)
		}
	}
	for at, search := range r.claimer.searches {
		s.full[at] = search.recent(r.clock())
	}
	var now owned
	s.Blocks = slices.Clone(ck.Blocks)
	for _, b := range ck.Blocks {
		if b.State == blockOwned || b.State == blockReclaiming {
			now.blocks = append(now.blocks, b.CIDR)
		}
	}
	slices.SortFunc(s.Blocks, func(a, b OwnBlock) int { return a.CIDR.Compare(b.CIDR) })
	r.published.status.Store(&s)

	if now.node = ck.Node; !s.Connected || s.Contested != nil { // each machine with the key would tell of its own blocks
		now = owned{}
	}
	if was, _ := r.published.owned.Get(); was.node != now.node || !slices.Equal(was.blocks, now.blocks) {
		r.published.owned.Set(now)
	}
}

// Report implements server.StatusReporter. It does not ask the store.
func (c *Controller) Report(status *v1.Status) {
	s := c.Status()
	if s.Recovery != nil {
		status.Recovery = &v1.RecoveryStatus{UnderWay: true, Began: s.Recovery.Began, Reason: s.Recovery.Reason, Unwritten: !s.Written}
	}
	if s.RecoveryRequested {
		status.Recovery = cmp.Or(status.Recovery, &v1.RecoveryStatus{})
		status.Recovery.Requested = true
	}
	for _, b := range s.Blocks {
		if b.State != blockConflict {
			continue
		}
		conflict := v1.BlockConflict{CIDR: b.CIDR, Pool: b.Pool, Owner: b.OtherOwner}
		if _, err := cluster.ParseNodeID(b.OtherOwner); err != nil { // its record cannot be read
			conflict.Owner = ""
		}
		status.Conflicts = append(status.Conflicts, conflict)
	}
}

// Condition implements supervisor.HealthReporter. A store that does not answer is the store's to report.
func (c *Controller) Condition() supervisor.Condition {
	s, reason := c.Status(), ""
	refused := c.rounds.waiters.refusal()
	switch {
	case refused != nil:
		reason = "no address is given out: " + refused.Error()
	case s.Contested != nil:
		reason = s.Contested.Error()
	case errors.Is(s.blocked, ErrNodeDeleted):
		reason = "no address is given out: " + s.blocked.Error()
	case s.noPool:
		reason = "no address is given out: there is no pool; create one with " + c.rounds.backend.Command("pool create")
	default:
		return supervisor.Condition{Cell: "multipool", State: supervisor.OK}
	}
	return supervisor.Condition{Cell: "multipool", State: supervisor.Degraded, Reason: reason}
}

// Resources implements [capacity.Source], for porin status; the CNI verb STATUS does not fail for what it says. The
// allocator counts the addresses of the node's blocks. The node claims more when they are used up, unless it knows that
// it cannot.
func (c *Controller) Resources() []capacity.Resource {
	status := c.Status()
	list := []capacity.Resource{{Name: "node-key", Err: status.Contested, Finding: findingNodeContested}}
	for _, pool := range c.rounds.addresses.allocator.Usage().Pools {
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
			err := status.blocked // why the node gets no block of the pool, as far as it knows
			if err == nil && status.full[poolFamily{pool.Name, f}] {
				err = fmt.Errorf("pool %s, %s: %w", pool.Name, f, ErrNoBlock)
			}
			r := capacity.Resource{Name: capacity.Addresses(pool.Name, f.String()), Refilled: err == nil}
			if free[f] == 0 {
				r.Err = err
			}
			list = append(list, r)
		}
	}
	return list
}

// newCollector shows the claims, and the blocks of the status.
func newCollector(c *Controller) *metrics.Values {
	v := metrics.NewValues("porin_multipool_", c.rounds.claims)
	blocks := v.Gauge("blocks", "Blocks of this node, by pool, family and state: owned, claiming, released, conflict or reclaiming.", "pool", "family", "state")
	sizes := v.Gauge("pool_blocks", "Blocks of a pool of the cluster, whether nodes have them or not.", "pool", "family")
	v.Read = func(ch chan<- prometheus.Metric) {
		status, counts := c.Status(), map[[3]string]float64{}
		for _, b := range status.Blocks {
			counts[[3]string{b.Pool, cluster.FamilyOf(b.CIDR.Addr()).String(), string(b.State)}]++
		}
		for of, n := range counts {
			blocks.Send(ch, n, of[:]...)
		}
		for of, n := range status.sizes {
			if n > 0 {
				sizes.Send(ch, float64(n), of.pool, of.family.String())
			}
		}
	}
	return v
}
