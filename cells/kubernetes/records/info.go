package records

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/watchable"
)

// infoName is the name of the one record.
const (
	infoName  = "cluster"
	infoField = "metadata.name=" + infoName
)

// info is the record of the cluster.
type info struct {
	kind[cluster.ClusterInfo]
	store func(context.Context) (string, error) // which cluster the API server is of

	mu    sync.Mutex // guards the field below
	watch *infoWatch // nil without watchers
}

// Get lists, because a list says where the store is also when there is no record.
func (s *info) Get(ctx context.Context) (none cluster.ClusterInfo, position cluster.Position, err error) {
	store, err := s.store(ctx)
	if err != nil {
		return none, position, s.translate("read", err)
	}
	page, err := s.page(ctx, infoField, "")
	if err != nil {
		return none, position, s.translate("list", err)
	}
	if position, err = s.position(store, page.Version); err != nil {
		return none, position, err
	}
	if len(page.Objects) == 0 {
		return none, position, cluster.ErrNotFound
	}
	record := page.Objects[0].Value
	return record.item, position, record.err
}

// listWait is how long Recent waits for the list of a watch that has just begun.
const listWait = 500 * time.Millisecond

// Recent is Get without a request while a watch is open: an API server that was set back has ended it. It blocks up to
// listWait.
func (s *info) Recent(ctx context.Context) (none cluster.ClusterInfo, position cluster.Position, err error) {
	s.mu.Lock()
	w := s.watch
	s.mu.Unlock()
	if w == nil {
		return s.Get(ctx)
	}
	list, stop := context.WithTimeout(ctx, listWait)
	defer stop()
	select {
	case <-w.loop.Synced():
	case <-list.Done():
	}
	state := w.loop.State()
	if !state.Synced || state.Err != nil {
		return s.Get(ctx)
	}
	store, err := s.store(ctx)
	if err != nil {
		return none, position, s.translate("read", err)
	}
	if position, err = s.position(store, state.Version); err != nil {
		return none, position, err
	}
	now, _ := w.state.Get()
	if now.record == nil {
		return none, position, cluster.ErrNotFound
	}
	return now.record.item, position, now.record.err
}

func (s *info) position(store, version string) (cluster.Position, error) {
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		err = fmt.Errorf("list %s: version %q: %w", s.resource(), version, errors.Join(cluster.ErrUnavailable, err))
	}
	return cluster.Position{Store: store, Revision: revision}, err
}

// infoWatch is the one watch of the API server for all watchers.
type infoWatch struct {
	loop    *watch.Loop[record[cluster.ClusterInfo]]
	state   watchable.Value[infoState]
	users   int // guarded by info.mu
	cancel  context.CancelFunc
	stopped chan struct{}
}

// infoState is the record as the watch has told it last; nil is none.
type infoState struct {
	record *record[cluster.ClusterInfo]
	lists  int // how many lists there were
}

// Watch tells the latest state, and leaves out earlier ones.
func (s *info) Watch(ctx context.Context) (<-chan cluster.Change[cluster.ClusterInfo], error) {
	t := &teller[cluster.ClusterInfo]{ctx: ctx, changes: make(chan cluster.Change[cluster.ClusterInfo])}
	w := s.join(ctx)
	go func() {
		defer close(t.changes)
		defer s.release(w)
		for told := (infoState{}); ctx.Err() == nil; {
			now, changed := w.state.Get()
			if now != told {
				t.notify(now.change(told))
				told = now
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	}()
	return t.changes, nil
}

// change is what a watcher that was told another state hears.
func (now infoState) change(told infoState) (c cluster.Change[cluster.ClusterInfo]) {
	readable := now.record != nil && now.record.err == nil
	switch {
	case now.lists > told.lists && readable:
		return cluster.Change[cluster.ClusterInfo]{Kind: cluster.Snapshot, All: []cluster.ClusterInfo{now.record.item}}
	case now.lists > told.lists:
		return cluster.Change[cluster.ClusterInfo]{Kind: cluster.Snapshot}
	case readable:
		return cluster.Change[cluster.ClusterInfo]{Kind: cluster.Put, Name: infoName, Item: now.record.item}
	}
	return cluster.Change[cluster.ClusterInfo]{Kind: cluster.Deleted, Name: infoName}
}

// join returns the watch, and begins it for the first watcher.
func (s *info) join(ctx context.Context) *infoWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch == nil {
		w := &infoWatch{stopped: make(chan struct{})}
		ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
		w.loop = watch.New(s.resource(), s.source(infoField), w, s.log)
		go func() {
			defer close(w.stopped)
			_ = w.loop.Run(ctx) // returns nil
		}()
		s.watch = w
	}
	s.watch.users++
	return s.watch
}

// release ends the watch with its last watcher.
func (s *info) release(w *infoWatch) {
	s.mu.Lock()
	if w.users--; w.users > 0 {
		s.mu.Unlock()
		return
	}
	s.watch = nil
	s.mu.Unlock()
	w.cancel()
	<-w.stopped
}

// Replace implements [watch.Handler].
func (w *infoWatch) Replace(objects map[watch.Key]watch.Object[record[cluster.ClusterInfo]]) {
	now, _ := w.state.Get()
	next := infoState{lists: now.lists + 1}
	for _, o := range objects {
		next.record = &o.Value
	}
	w.state.Set(next)
}

// Update implements [watch.Handler].
func (w *infoWatch) Update(o watch.Object[record[cluster.ClusterInfo]]) {
	if now, _ := w.state.Get(); o.Value.err == nil {
		w.state.Set(infoState{&o.Value, now.lists})
	}
}

// Delete implements [watch.Handler].
func (w *infoWatch) Delete(watch.Object[record[cluster.ClusterInfo]]) {
	now, _ := w.state.Get()
	w.state.Set(infoState{lists: now.lists})
}
