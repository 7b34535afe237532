package multipool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/cells/ipam/multipool"
)

// countCalls counts the calls of that kind.
func countCalls(b cluster.Backend, what string) (cluster.Backend, *atomic.Int64) {
	var n atomic.Int64
	return clustertest.Intercept(b, func(ctx context.Context, called string, call func(context.Context) error) error {
		if called == what {
			n.Add(1)
		}
		return call(ctx)
	}), &n
}

// rounds has the agent make rounds, whatever comes of them.
func (w *world) rounds(m *machine, n int) {
	w.Helper()
	for range n {
		_ = m.controller.Reconcile(w.Context())
	}
}

// TestDefaultPoolOverlaps configures a default pool that overlaps another one: nothing is written.
func TestDefaultPoolOverlaps(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("pods", 28, "10.0.0.0/16")
		w.cfg.DefaultPool, w.cfg.Interval = []string{"10.0.0.0/16"}, time.Hour
		var creations *atomic.Int64
		w.backend, creations = countCalls(w.backend, "Pools.Create")
		w.rounds(w.machine("one", 1), 20)
		if creations.Load() > 0 {
			t.Errorf("%d creations of a pool in 20 rounds", creations.Load())
		}
	})
}

// TestDefaultPoolOverlapEnds deletes the pool that the default pool overlaps.
func TestDefaultPoolOverlapEnds(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("pods", 28, "10.0.0.0/16")
	w.cfg.DefaultPool = []string{"10.0.0.0/16"}
	one := w.machine("one", 1)
	w.rounds(one, 1)
	if err := admin.NewPools(w.backend).Delete(t.Context(), "pods"); err != nil {
		t.Fatal(err)
	}
	w.mustAllocate(one)
}

// TestDefaultPoolDeleted deletes the pool that an agent has created: no agent creates it again, before the store is
// another one.
func TestDefaultPoolDeleted(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate, w.cfg.DefaultPool = 0, []string{"10.0.0.0/24"}
	one := w.machine("one", 1)
	pools := admin.NewPools(w.backend)
	w.wait("the pool is there", func() bool { return multipool.Saved(one.controller, "default").UID != "" })
	w.wait("the pool is deleted", func() bool { return pools.Delete(t.Context(), "default") == nil })
	w.rounds(one, 20)
	two := w.machine("two", 2)
	w.rounds(two, 5)
	if p, err := pools.Get(t.Context(), "default"); !errors.Is(err, admin.ErrNoPool) {
		t.Errorf("the pool that was deleted is there again: %+v, error %v", p, err)
	}
	s.Wipe()
	w.wait("both have written their blocks", func() bool {
		return one.controller.Status().Recovery != nil && one.controller.Status().Written && two.controller.Status().Recovery != nil && two.controller.Status().Written
	})
	w.endRecovery()
	w.mustAllocate(one)
}

// TestPendingPoolNoRound creates pools that are refused: no agent asks the store anything about them.
func TestPendingPoolNoRound(t *testing.T) {
	w := newWorld(t, embeddedtest.New(t))
	w.cfg.Interval = time.Hour
	pools := w.backend.Pools
	var reads *atomic.Int64
	w.backend, reads = countCalls(w.backend, "Pools.Get")
	one := w.machine("one", 1)
	w.rounds(one, 1)
	for range 20 {
		p, err := pools.Create(t.Context(), cluster.Pool{Name: "pending", UID: "x", State: cluster.PoolPending, Pending: prefixes("10.0.0.0/16")}.WithDefaults())
		if err == nil {
			err = pools.Delete(t.Context(), p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pools.Create(t.Context(), cluster.Pool{Name: "last", UID: "y", State: cluster.PoolAccepted, Prefixes: prefixes("10.0.0.0/16"), IPv4BlockBits: 28}.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	w.wait("it has seen the last pool", func() bool { return multipool.Saved(one.controller, "last").UID != "" })
	if n := reads.Load(); n != 0 {
		t.Errorf("%d reads of a pool that nobody has accepted", n)
	}
}
