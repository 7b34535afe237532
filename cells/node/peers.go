package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// Peers follow the records of the other nodes.
type Peers struct {
	backend *cluster.Backend // nil without other nodes
	cache   *cache.Cache     // nil without one
	objects Kubernetes
	self    *watchable.Value[Self]
	log     *slog.Logger
	view    watchable.Value[View]
	task    *task.Task

	// Of the task.
	records   *records
	conflicts map[Conflict]time.Time // whose owners were asked for, and when they are asked for again
	began     bool                   // a watch has: its records are newer than the cache's
	answered  bool                   // the store has, since the start
	storeAway bool                   // it has had some time to
	asOf      time.Time              // as in View
	from      cache.Origin           // of what is known since then
}

// The pauses of following.
const (
	watchPause  = time.Second // before a watch that has ended begins again
	claimsPause = 30 * time.Second
	nodesPause  = 10 * time.Minute      // before Node objects are read again
	viewPause   = 50 * time.Millisecond // in which changes are one view
)

// StoreTimeout is how long the store has to answer after a start, before what was known of other nodes is used.
const StoreTimeout = 500 * time.Millisecond

// NewPeers returns what follows the records in the backend, and what self says of this node; a nil backend has no other
// nodes. The cache, which may be nil, has the records while the store does not answer after a start.
func NewPeers(backend *cluster.Backend, c *cache.Cache, objects Kubernetes, self *watchable.Value[Self], log *slog.Logger) *Peers {
	p := &Peers{backend: backend, cache: c, objects: objects, self: self, log: log, records: newRecords(), conflicts: map[Conflict]time.Time{}}
	p.task = task.Retry(log, "node-follow-peers", watchPause, p.follow)
	return p
}

// View returns what is known, and a channel that is closed when that changes.
func (p *Peers) View() (View, <-chan struct{}) { return p.view.Get() }

// Task is the loop.
func (p *Peers) Task() *task.Task { return p.task }

// peersWatch is one watch of all that the store says of nodes.
type peersWatch struct {
	networks    <-chan cluster.Change[cluster.NodeNetwork]
	info        <-chan cluster.Change[cluster.ClusterInfo]
	hasNetworks bool // all that there are
	hasInfo     bool
	origin      cache.Origin // of the records; zero: to be read
}

// begin fills in the watch. Also after an error, the channels are to be drained.
func (p *Peers) begin(ctx context.Context, w *peersWatch) (err error) {
	if p.backend == nil {
		w.hasNetworks, w.hasInfo = true, true
		return nil
	}
	var from cluster.Resume[cluster.NodeNetwork]
	if !p.began {
		from, p.began = p.cache.ResumeNetworks(p.Origin), true
	}
	if w.info, err = p.backend.Info.Watch(ctx); err != nil { // first: Origin needs what it brings
		return fmt.Errorf("watch the record of the cluster: %w", err)
	}
	if w.networks, err = p.backend.Networks.Watch(ctx, from); err != nil {
		return fmt.Errorf("watch the networks of nodes: %w", err)
	}
	return nil
}

// follow is one watch of everything, until one ends.
func (p *Peers) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &peersWatch{}
	defer func() {
		cancel()
		drain(w.networks)
		drain(w.info)
	}()
	if err := p.begin(ctx, w); err != nil {
		return err
	}
	claims := time.NewTicker(claimsPause)
	defer claims.Stop()
	timeout := time.NewTimer(StoreTimeout)
	defer timeout.Stop()
	for {
		self, selfChanged := p.self.Get()
		if err := p.update(ctx, w, self); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-selfChanged:
		case c, ok := <-w.networks:
			if !ok {
				return errWatchEnded
			}
			p.apply(c)
			w.hasNetworks = true
			if c.Kind != cluster.Snapshot && !p.applyMore(ctx, w.networks) {
				return errWatchEnded
			}
		case c, ok := <-w.info:
			if !ok {
				return errWatchEnded
			}
			p.applyInfo(c)
			w.hasInfo, w.origin = true, cache.Origin{}
		case <-timeout.C:
			if p.backend != nil && !p.answered && !p.storeAway {
				p.useCache()
			}
		case <-claims.C:
			p.expireClaims(time.Now())
		}
	}
}

// update publishes the view of what the watch has brought, or of what was known while the store is away.
func (p *Peers) update(ctx context.Context, w *peersWatch, self Self) (err error) {
	switch {
	case self.Node.Name == "": // its own record would be another node's
	case w.hasNetworks && w.hasInfo:
		if p.backend != nil && w.origin == (cache.Origin{}) {
			if w.origin, err = p.Origin(ctx); err != nil {
				return err
			}
			p.hasAnswered(w.origin)
		}
		p.publish(ctx, self)
	case p.storeAway:
		v := View{Self: self}
		if !p.asOf.IsZero() {
			v = p.records.view(self)
			v.Own = nil // the one of the store may be another
		}
		v.StoreAway, v.AsOf = true, p.asOf
		p.view.Set(v)
	}
	return nil
}

func (p *Peers) apply(c cluster.Change[cluster.NodeNetwork]) {
	p.records.apply(c)
	p.cache.RecordNetworks(c)
}

// applyMore applies what else comes soon: a view is made of all records. It reports whether the watch goes on.
func (p *Peers) applyMore(ctx context.Context, networks <-chan cluster.Change[cluster.NodeNetwork]) bool {
	pause := time.NewTimer(viewPause)
	defer pause.Stop()
	for {
		select {
		case c, ok := <-networks:
			if !ok {
				return false
			}
			p.apply(c)
		case <-pause.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// useCache publishes the cached records until the store answers.
func (p *Peers) useCache() {
	networks, origin, asOf := p.cache.Networks()
	p.storeAway, p.from, p.asOf = true, origin, asOf
	if asOf.IsZero() {
		p.log.Warn("the store does not answer, and nothing is known of other nodes until it does", "waited", StoreTimeout)
		return
	}
	p.log.Warn("the store does not answer: what was known of other nodes counts until it does", "waited", StoreTimeout, "known", asOf, "nodes", len(networks))
	p.records.apply(cluster.Change[cluster.NodeNetwork]{Kind: cluster.Snapshot, All: networks})
}

// Origin asks the store where its records are from. It may be called concurrently.
func (p *Peers) Origin(ctx context.Context) (cache.Origin, error) {
	info, position, err := p.backend.Info.Recent(ctx)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return cache.Origin{}, fmt.Errorf("read the record of the cluster: %w", err)
	}
	return cache.Origin{Store: position.Store, Cluster: info.ID, Recovery: info.LastRecovery()}, nil
}

// hasAnswered has what was known count as lost when the store does not have it, and as nothing when it is of another
// origin.
func (p *Peers) hasAnswered(origin cache.Origin) {
	if p.storeAway && origin != p.from {
		p.records.deleteMissing()
	}
	if !p.answered && len(p.records.removed) > 0 {
		former, _, _ := p.cache.Networks()
		p.records.addDeleted(former)
	}
	p.answered, p.storeAway, p.asOf = true, false, time.Time{}
	p.cache.SetOrigin(origin)
}

var errWatchEnded = errors.New("the watch has ended")

func drain[T any](c <-chan T) {
	if c == nil {
		return
	}
	for range c { // closed soon
	}
}

func (p *Peers) applyInfo(c cluster.Change[cluster.ClusterInfo]) {
	switch {
	case c.Kind == cluster.Put:
		p.records.setRemoved(c.Item.Removed)
	case c.Kind == cluster.Snapshot && len(c.All) == 1:
		p.records.setRemoved(c.All[0].Removed)
	}
	// A missing record was lost by the store: its last content holds.
}

// publish publishes the nodes and blocks that count now. It reads the claims of blocks that came into conflict.
func (p *Peers) publish(ctx context.Context, self Self) {
	v := p.records.view(self)
	if p.backend != nil && p.readClaims(ctx, v.Conflicts) {
		v = p.records.view(self)
	}
	p.view.Set(v)
}

// maxClaims bounds how many claims are read for one change.
const maxClaims = 100

// expireClaims makes readClaims ask again. Until it has an answer, the last one counts.
func (p *Peers) expireClaims(now time.Time) {
	maps.DeleteFunc(p.conflicts, func(_ Conflict, until time.Time) bool { return now.After(until) })
}

// readClaims asks for the owners of blocks in conflict, and reports whether one is another than before.
func (p *Peers) readClaims(ctx context.Context, conflicts []Conflict) (changed bool) {
	for _, c := range conflicts[:min(len(conflicts), maxClaims)] {
		if _, ok := p.conflicts[c]; ok {
			continue
		}
		p.conflicts[c] = time.Now().Add(claimsPause)
		p.log.Warn("a block of a node's record does not count", "node", c.Node.String(), "cidr", c.Block, "reason", c.Reason)
		owner := cluster.NodeID{} // none
		block, err := p.backend.Blocks.Get(ctx, c.Block)
		switch {
		case err == nil:
			owner = block.Owner
		case errors.Is(err, cluster.ErrNotFound) && c.Node == IDOfName(c.Node.Name):
			owner, err = p.readNodes(ctx, c)
		case errors.Is(err, cluster.ErrNotFound):
			err = nil
		}
		if err != nil {
			p.log.Warn("cannot read whose block it is; next try soon", "cidr", c.Block, "error", err)
			continue
		}
		was := p.records.claims[c.Block]
		if changed = changed || owner != was; owner == (cluster.NodeID{}) {
			delete(p.records.claims, c.Block)
		} else {
			p.records.claims[c.Block] = owner
		}
	}
	return changed
}

// readNodes returns the node whose Node has the podCIDR; if both or neither have it, none or a third node that has it.
// When a Node is deleted, another Node gets its podCIDR, while the old record still stands.
func (p *Peers) readNodes(ctx context.Context, c Conflict) (owner cluster.NodeID, err error) {
	loser, err := p.objects.HasPodCIDR(ctx, c.Node.Name, c.Block)
	if err != nil {
		return owner, err
	}
	winner := false
	if c.With.Name != "" {
		if winner, err = p.objects.HasPodCIDR(ctx, c.With.Name, c.Block); err != nil {
			return owner, err
		}
	}
	p.conflicts[c] = time.Now().Add(nodesPause)
	switch {
	case loser && !winner:
		return c.Node, nil
	case winner && !loser:
		return c.With, nil
	}
	if known := p.records.claims[c.Block]; known != c.Node && known != c.With {
		return known, nil // a third node has it
	}
	return owner, nil
}
