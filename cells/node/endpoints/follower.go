package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/task"
)

// Namespaces are the cluster's namespaces, where each agent watches them itself.
type Namespaces interface {
	// Labels returns the labels of each namespace, nil before they are known, and a channel that is closed when there are
	// others.
	Labels() (labels map[string]map[string]string, changed <-chan struct{})
}

// Follower tells the policies of the endpoints of other nodes. It is a [policy.RemoteSource].
type Follower struct {
	store      cluster.Published[cluster.EndpointGroup]
	namespaces Namespaces   // nil: groups have their labels
	cache      *cache.Cache // nil without one
	peers      *node.Peers
	log        *slog.Logger
	task       *task.Task

	remote     policy.Remote
	complete   chan struct{}
	ownChanged func() // nil without a publisher

	// Of the task.
	state *state
	began bool // a watch has: its records are newer than the cache's
	asked bool // for the groups: the store has listed them, or what was known of them counts
	// isComplete says that complete is closed: policies may be in the datapath. From then on they are told of a list at
	// its end: a page alone may make them write everything again.
	isComplete bool

	mu   sync.Mutex // guards the fields below
	node cluster.NodeID
	own  map[int]cluster.EndpointGroup // nil until they are known
}

var _ policy.RemoteSource = (*Follower)(nil)

// NewFollower returns what follows the groups in the store. With namespaces, which may be nil, the labels of namespaces
// come from there, and are not published. The cache, which may be nil, has all that while the store does not answer
// after a start. It starts with Begin.
func NewFollower(store cluster.Published[cluster.EndpointGroup], namespaces Namespaces, c *cache.Cache, peers *node.Peers, log *slog.Logger) *Follower {
	f := &Follower{store: store, namespaces: namespaces, cache: c, peers: peers, log: log, complete: make(chan struct{}), state: newState(namespaces != nil)}
	f.task = task.Retry(log, "node-follow-endpoints", watchPause, f.follow)
	return f
}

// Begin implements [policy.RemoteSource].
func (f *Follower) Begin(remote policy.Remote) <-chan struct{} {
	f.remote = remote
	f.task.Start(nil)
	return f.complete
}

const watchPause = time.Second // before a watch that has ended begins again

// listTimeout is how long a store that answers has to list all groups after a start. A list of 550,000 endpoints takes
// some seconds.
const listTimeout = 10 * time.Second

var errWatchEnded = errors.New("the watch has ended")

func (f *Follower) follow(ctx context.Context) error {
	if f.remote == nil { // Begin was not called
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	var from cluster.Resume[cluster.EndpointGroup]
	if !f.began {
		from, f.began = f.cache.ResumeEndpoints(f.peers.Origin), true
	}
	changes, err := f.store.Watch(ctx, from)
	if err != nil {
		cancel()
		return fmt.Errorf("watch the endpoints of nodes: %w", err)
	}
	defer func() {
		cancel()
		for range changes { // closed soon
		}
	}()
	listed := false
	f.state.listing = false
	timeout := time.NewTimer(listTimeout)
	defer timeout.Stop()
	expiry := time.NewTicker(holdTime / 3)
	defer expiry.Stop()
	var told, joined <-chan struct{} // of the view that the policies were told of, and of the namespaces
	for {
		joined = f.joinNamespaces(joined)
		view, changed := f.peers.View()
		f.state.setSelf(view.Self.Node)
		if view.StoreAway {
			f.useCache()
		}
		if view.Ready && !(f.state.listing && f.isComplete) {
			f.tell(view, changed != told, listed)
			told = changed
		}
		if !f.isComplete && f.asked && (view.Ready || view.StoreAway) && f.state.knowsNamespaces() {
			f.isComplete = true
			close(f.complete)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-joined:
		case <-timeout.C:
			f.useCache()
		case <-expiry.C:
			f.state.expire(time.Now())
		case c, ok := <-changes:
			if !ok {
				return errWatchEnded
			}
			listed = listed || c.Kind == cluster.Snapshot && !c.More
			f.asked = f.asked || listed
			f.cache.RecordEndpoints(c)
			f.state.apply(c, time.Now())
		}
	}
}

// joinNamespaces takes the labels of the namespaces if they are others than those with the channel, and returns the
// channel of these.
func (f *Follower) joinNamespaces(joined <-chan struct{}) <-chan struct{} {
	if f.namespaces == nil {
		return nil
	}
	labels, changed := f.namespaces.Labels()
	if changed != joined && labels != nil {
		f.state.setNamespaces(labels)
		f.cache.RecordNamespaces(labels)
	}
	return changed
}

// tell has the policies know what is new.
func (f *Follower) tell(view node.View, isNew, listed bool) {
	var change policy.RemoteChange
	if isNew {
		f.state.updateNodes(view, &change, time.Now())
		f.state.changed[view.Self.Node] = true
	}
	f.state.updateGroups(&change, time.Now())
	if len(change.Set)+len(change.Remove)+len(change.SetBlocks)+len(change.RemoveBlocks) > 0 {
		f.remote.SetRemote(change)
	}
	if !listed {
		return
	}
	if f.state.changed[view.Self.Node] {
		f.setOwn(view.Self.Node)
	}
	clear(f.state.changed)
}

// useCache uses the groups that a previous agent has received, until the store answers.
func (f *Follower) useCache() {
	if f.asked {
		return
	}
	f.asked = true
	groups, namespaces, told := f.cache.Endpoints()
	if !f.state.knowsNamespaces() {
		f.state.setNamespaces(namespaces)
	}
	if told.IsZero() {
		f.log.Warn("the store does not answer: policies that select pods of other nodes let none of them through until it does")
		return
	}
	f.log.Warn("the store does not answer: policies use what was known of pods of other nodes until it does", "known", told)
	f.state.addCached(groups)
}

func (f *Follower) setOwn(id cluster.NodeID) {
	if id.Key == "" {
		return
	}
	own := f.state.groupsOf(id)
	f.mu.Lock()
	same := f.own != nil && f.node == id && maps.EqualFunc(f.own, own, func(a, b cluster.EndpointGroup) bool { return a.Version == b.Version })
	f.node, f.own = id, own
	f.mu.Unlock()
	if !same && f.ownChanged != nil {
		f.ownChanged()
	}
}

// ownGroups are this node's groups in the store. ok is false until they are known.
func (f *Follower) ownGroups() (id cluster.NodeID, groups map[int]cluster.EndpointGroup, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node, maps.Clone(f.own), f.own != nil
}

// wrote notes a group that the publisher has written, before the watch tells of it.
func (f *Follower) wrote(g cluster.EndpointGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.node == g.Node {
		f.own[g.Slot] = g
	}
}
