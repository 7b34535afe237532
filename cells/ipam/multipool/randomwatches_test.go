package multipool_test

import (
	"context"
	"fmt"
	"sync"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/testutil"
)

// watches are the open watches of a backend's users. Each has to list again after the store was set back.
type watches struct {
	mu   sync.Mutex       // guards the fields below
	open map[*string]bool // by kind; true: it has listed since the store was set back
}

func (w *watches) backend(b cluster.Backend) cluster.Backend {
	b.Nodes, b.Pools, b.Sessions, b.Info = watchedNodes{b.Nodes, w}, watchedPools{b.Pools, w}, watchedSessions{b.Sessions, w}, watchedInfo{b.Info, w}
	return b
}

// setBack has every open watch owe a list.
func (w *watches) setBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch := range w.open {
		w.open[watch] = false
	}
}

// late are the kinds of watches that owe a list.
func (w *watches) late() (kinds []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, listed := range w.open {
		if !listed {
			kinds = append(kinds, *kind)
		}
	}
	return kinds
}

func watched[T any](w *watches, kind string, changes <-chan cluster.Change[T], err error) (<-chan cluster.Change[T], error) {
	if err != nil {
		return changes, err
	}
	w.mu.Lock()
	if w.open == nil {
		w.open = map[*string]bool{}
	}
	w.open[&kind] = true // it begins with a list
	w.mu.Unlock()
	out := make(chan cluster.Change[T])
	go func() {
		defer close(out)
		for change := range changes {
			if change.Kind == cluster.Snapshot {
				w.mu.Lock()
				w.open[&kind] = true
				w.mu.Unlock()
			}
			out <- change // its user reads until the end
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, &kind)
	}()
	return out, nil
}

type watchedNodes struct {
	cluster.Nodes
	*watches
}

func (n watchedNodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	changes, err := n.Nodes.Watch(ctx)
	return watched(n.watches, "nodes", changes, err)
}

type watchedPools struct {
	cluster.Pools
	*watches
}

func (p watchedPools) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	changes, err := p.Pools.Watch(ctx)
	return watched(p.watches, "pools", changes, err)
}

type watchedSessions struct {
	cluster.Sessions
	*watches
}

func (s watchedSessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	changes, err := s.Sessions.Watch(ctx, id)
	return watched(s.watches, "session of "+id.String(), changes, err)
}

type watchedInfo struct {
	cluster.Info
	*watches
}

func (i watchedInfo) Watch(ctx context.Context) (<-chan cluster.Change[cluster.ClusterInfo], error) {
	changes, err := i.Info.Watch(ctx)
	return watched(i.watches, "info", changes, err)
}

// listed waits until every watch that was open before the last restore has listed since.
func (w *randomWorld) listed() {
	if w.store.watches != nil {
		testutil.Eventually(w.T, func() error {
			if late := w.store.watches.late(); len(late) > 0 {
				return fmt.Errorf("watches that have not listed since the store was set back: %v", late)
			}
			return nil
		})
	}
}
