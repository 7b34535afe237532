package multipool_test

import (
	"context"
	"sync"
	"testing"

	"porin.dev/porin/cells/cluster"
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
