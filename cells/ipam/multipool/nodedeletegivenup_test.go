package multipool_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// TestNodeDeleteInterrupted ends a deletion of a machine that is off after the blocks were deleted. A deletion without
// that word leaves the record as it is: the agent would miss its blocks in the store.
func TestNodeDeleteInterrupted(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/27")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		w.stop(one)
		w.endPods(one)
		one.boots++
		nodes := admin.NewNodes(b)
		nodes.RecordDelay = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- nodes.Delete(ctx, id, true) }()
		w.wait("the blocks are deleted", func() bool { return len(w.blocks()) == 0 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := nodes.Delete(t.Context(), id, false); !errors.Is(err, admin.ErrMachineMayRun) {
			t.Errorf("error %v, want %v", err, admin.ErrMachineMayRun)
		}
		if n, err := b.Nodes.Get(t.Context(), id); err != nil || n.State != cluster.NodeReleasing {
			t.Errorf("the record is %+v, error %v; want it to be released, as the machine is off", n, err)
		}
		w.start(one)
		w.mustAllocate(one)
		if now := one.controller.Status().Node; now == id {
			t.Errorf("the agent goes on as %s", now)
		}
		w.neverRecovered()
		if err := w.nodeAdmin().Delete(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	})
}
