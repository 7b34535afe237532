package multipool_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// slowInfo is a record of the cluster that another node creates, or changes, after this one has read it for the first time.
type slowInfo struct {
	cluster.Info
	other func()
	once  sync.Once
}

func (s *slowInfo) Get(ctx context.Context) (cluster.Record, cluster.Position, error) {
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

func (i contestedInfo) Put(ctx context.Context, r cluster.Record) (cluster.Record, error) {
	if r.Epoch > 0 && r.Recovery == nil {
		return r, cluster.ErrConflict
	}
	return i.Info.Put(ctx, r)
}

func TestRefillWhileOthersChangeTheCluster(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	w.backend.Info = contestedInfo{w.backend.Info}
	one := w.machine("one", 1)
	w.mustAllocate(one)
	if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.wait("the end of the recovery is contested", func() bool {
		err := one.controller.Refill(t.Context(), "default")
		if err != nil && fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("an ADD fails with %q: %v; another try may succeed", fault.KindOf(err), err)
		}
		return errors.Is(err, cluster.ErrConflict)
	})
}
