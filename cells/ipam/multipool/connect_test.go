package multipool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/internal/fault"
)

// slowInfo is a record of the cluster that another node creates, or changes, after this one has read it for the first time.
type slowInfo struct {
	cluster.Info
	other func()
	once  sync.Once
}

func (s *slowInfo) Get(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	r, position, err := s.Info.Get(ctx)
	s.once.Do(s.other)
	return r, position, err
}

func TestStartTogether(t *testing.T) {
	b := strict(t)
	first := newWorld(t, b)
	first.pool("default", 28, "10.0.0.0/24")
	second := newWorld(t, b)
	second.backend.Info = &slowInfo{Info: b.Info, other: func() { first.mustAllocate(first.machine("one", 1)) }}
	two := second.machine("two", 2)
	if err := two.controller.Refill(t.Context(), "default"); err != nil {
		t.Errorf("a node that starts together with another one gets no block at its first try: %v", err)
	}
}

// contestedInfo is a record of the cluster that another node changes whenever this one wants to end a recovery.
type contestedInfo struct{ cluster.Info }

func (i contestedInfo) Put(ctx context.Context, r cluster.ClusterInfo) (cluster.ClusterInfo, error) {
	if r.Epoch > 0 && r.Recovery == nil {
		return r, cluster.ErrConflict
	}
	return i.Info.Put(ctx, r)
}

func TestRefillDuringClusterInfoChange(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	w.backend.Info = contestedInfo{w.backend.Info}
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.beginRecovery()
	w.wait("the end of the recovery is contested", func() bool {
		err := one.controller.Refill(t.Context(), "default")
		if err != nil && fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("an ADD fails with %q: %v; another try may succeed", fault.KindOf(err), err)
		}
		return errors.Is(err, cluster.ErrConflict)
	})
}

// TestConnectOnce counts what nodes read of the cluster at their start: the snapshots with which their watches begin
// are no reason to do it again.
func TestConnectOnce(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		var reads atomic.Int64
		w.backend = clustertest.Intercept(b, func(ctx context.Context, what string, call func(context.Context) error) error {
			if what == "Info.Get" {
				reads.Add(1)
			}
			return call(ctx)
		})
		w.cfg.PreAllocate, w.cfg.Interval = 0, time.Hour
		w.pool("default", 28, "10.0.0.0/24")
		const nodes = 10
		for i := range nodes {
			w.mustAllocate(w.machine(fmt.Sprint("node-", i), uint64(i)))
		}
		if n := reads.Load(); n > 2*nodes+nodes/2 { // one to connect, one for the claim, and some for what happens at the same time
			t.Errorf("%d reads of the cluster's record by %d nodes", n, nodes)
		}
	})
}

// lateNodes is nodes whose watches begin when they are told to.
type lateNodes struct {
	cluster.Nodes
	begin chan struct{}
}

func (l lateNodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	out := make(chan cluster.Change[cluster.Node])
	go func() {
		defer close(out)
		select {
		case <-l.begin:
		case <-ctx.Done():
			return
		}
		changes, err := l.Nodes.Watch(ctx)
		if err != nil {
			return
		}
		for change := range changes {
			select {
			case out <- change:
			case <-ctx.Done():
			}
		}
	}()
	return out, nil
}

// TestNodeDeleteBeforeFirstSnapshot has an administrator delete a node that is connected and whose watch of the nodes
// has told nothing yet.
func TestNodeDeleteBeforeFirstSnapshot(t *testing.T) {
	w := newWorld(t, cluster.OnStore(storetest.New(t)))
	plain, begin := w.backend, make(chan struct{})
	w.backend.Nodes = lateNodes{plain.Nodes, begin}
	one := w.machine("one", 1)
	w.backend = plain
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	id, deleted := one.controller.Status().Node, make(chan error, 1)
	go func() { deleted <- w.nodeAdmin().Delete(t.Context(), id, false) }()
	w.wait("the deletion is asked for", func() bool {
		n, err := plain.Nodes.Get(t.Context(), id)
		return err == nil && n.State == cluster.NodeReleasing
	})
	close(begin)
	if err := <-deleted; err != nil {
		t.Errorf("error %v, want the agent to agree", err)
	}
}
