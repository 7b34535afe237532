package multipool_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
)

// slowInfo is a record of the cluster that another node creates, or changes, after this one has read it for the first
// time.
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
