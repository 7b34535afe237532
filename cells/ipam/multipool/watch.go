package multipool

import (
	"context"
	"errors"
	"time"

	"porin.dev/porin/cells/cluster"
)

// watches are what the goroutine listens to.
type watches struct {
	pools   <-chan cluster.Change[cluster.Pool]
	nodes   <-chan cluster.Change[cluster.Node]
	info    <-chan cluster.Change[cluster.Record]
	session <-chan cluster.Change[cluster.Session]
}

func (c *Controller) watch(ctx context.Context) (w watches, err error) {
	var errs [4]error
	w.pools, errs[0] = c.backend.Pools.Watch(ctx)
	w.nodes, errs[1] = c.backend.Nodes.Watch(ctx)
	w.info, errs[2] = c.backend.Info.Watch(ctx)
	w.session, errs[3] = c.backend.Sessions.Watch(ctx, c.checkpoint.Node)
	return w, errors.Join(errs[:]...)
}

// run makes rounds until ctx ends. A new incarnation of the node watches another session, and begins anew.
func (c *Controller) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.listen(ctx)
	}
}

func (c *Controller) listen(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := c.checkpoint.Node
	w, err := c.watch(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.warn(err, "the cluster's store cannot be watched")
			c.pause(ctx)
		}
		return
	}
	defer func() { cancel(); w.drain() }()
	for c.checkpoint.Node == id && ctx.Err() == nil {
		c.round(ctx)
		if !c.wait(ctx, w) {
			return
		}
	}
}

// drain waits for the ends of the watches.
func (w watches) drain() {
	for range w.pools {
	}
	for range w.nodes {
	}
	for range w.info {
	}
	for range w.session {
	}
}

func (c *Controller) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(c.cfg.SearchTime):
	}
}

// wait returns when there may be something to do, and false when a watch has ended.
func (c *Controller) wait(ctx context.Context, w watches) bool {
	timer := time.NewTimer(c.nextRound())
	defer timer.Stop()
	for {
		ok, news := true, true
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-c.kick:
			return true
		case change, open := <-w.pools:
			if ok = open; ok {
				c.pools.take(change)
			}
		case change, open := <-w.nodes:
			if ok = open; ok {
				news = c.nodesChanged(change)
			}
		case change, open := <-w.info:
			if ok = open; ok {
				news = c.infoChanged(change)
			}
		case change, open := <-w.session:
			if ok = open; ok {
				news = c.sessionChanged(change)
			}
		}
		if !ok {
			return false
		}
		if news {
			return true
		}
	}
}

// nodesChanged takes in what the watch of the nodes tells, and reports whether it concerns this node.
func (c *Controller) nodesChanged(change cluster.Change[cluster.Node]) (news bool) {
	own := c.checkpoint.Node.RecordName()
	switch change.Kind {
	case cluster.Snapshot:
		c.nodes.complete = true
		there := map[string]cluster.NodeID{}
		for _, n := range change.All {
			there[n.ID.RecordName()] = n.ID
			news = news || n.ID == c.checkpoint.Node && n.State != cluster.NodeActive
		}
		if c.nodes.doubt(there) {
			c.self.connected, news = false, true // connect finds out why it is gone
		}
		if _, ok := there[own]; !ok && c.checkpoint.Registered {
			c.self.connected, news = false, true
		}
		for _, id := range there {
			c.addNode(id)
		}
	case cluster.Put:
		if change.Name == own {
			if change.Item.State != cluster.NodeActive {
				c.self.connected, news = false, true
			}
			return news
		}
		c.addNode(change.Item.ID)
	case cluster.Deleted:
		if change.Name == own {
			c.self.connected = false
			return true
		}
		c.nodes.remove(change.Name)
	}
	return news
}

func (c *Controller) addNode(id cluster.NodeID) {
	if id != c.checkpoint.Node {
		c.nodes.add(id)
	}
}

// infoChanged reports whether the record of the cluster says something new.
func (c *Controller) infoChanged(change cluster.Change[cluster.Record]) bool {
	r := change.Item
	if change.Kind == cluster.Snapshot {
		if len(change.All) == 0 {
			c.self.connected = false
			return true
		}
		r = change.All[0]
		c.self.connected = false // the watch broke: the store may be another one
		return true
	}
	if change.Kind == cluster.Deleted || r.ID != c.self.info.ID || r.Epoch != c.self.info.Epoch || (r.Recovery == nil) != (c.self.info.Recovery == nil) {
		c.self.connected = false
		return true
	}
	return false
}

// sessionChanged reports whether the store has another session of this node than the one that this agent has written.
func (c *Controller) sessionChanged(change cluster.Change[cluster.Session]) bool {
	now := change.Item
	if change.Kind == cluster.Snapshot && len(change.All) == 1 {
		now = change.All[0]
	}
	if c.self.session.ID == "" || now.ID == c.self.session.ID && now.Contested == "" {
		return false
	}
	c.self.connected = false
	return true
}
