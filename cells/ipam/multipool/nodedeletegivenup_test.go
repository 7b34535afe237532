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
	"porin.dev/porin/cells/ipam/multipool"
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
		nodes.Wait, nodes.RecordDelay = 100*time.Millisecond, time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- nodes.Delete(ctx, id, true) }()
		w.wait("the blocks are deleted", func() bool { return len(w.blocks()) == 0 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := nodes.Delete(t.Context(), id, false); !errors.Is(err, admin.ErrSilent) {
			t.Errorf("error %v, want %v", err, admin.ErrSilent)
		}
		if n, err := b.Nodes.Get(t.Context(), id); err != nil || n.State != cluster.NodeReleasing || !n.MachineOff {
			t.Errorf("the record is %+v, error %v; want it to be released, as the machine is off", n, err)
		}
		w.start(one)
		w.mustAllocate(one)
		if now, r := one.controller.Status().Node, w.epoch(); now == id || r != 0 {
			t.Errorf("the agent goes on as %s, was %s; epoch %d", now, id, r)
		}
		if err := w.nodeAdmin().Delete(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	})
}

// TestNodeDeleteGivenUp gives up a deletion while it waits for an agent that is down: the agent goes on when it is back.
func TestNodeDeleteGivenUp(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
		id := one.controller.Status().Node
		w.stop(one)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.nodeAdmin().Delete(ctx, id, false) }()
		w.wait("the deletion is begun", func() bool {
			n, err := b.Nodes.Get(t.Context(), id)
			return err == nil && n.State == cluster.NodeReleasing
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if n, err := b.Nodes.Get(t.Context(), id); err != nil || n.State != cluster.NodeActive {
			t.Errorf("the record is %+v, error %v; want it to be active", n, err)
		}
		w.start(one)
		w.mustAllocate(one)
	})
}

// TestNodeDeleteGivenUpBeforeAnswer gives up a deletion after the store has marked the node, and before it has answered.
func TestNodeDeleteGivenUpBeforeAnswer(t *testing.T) {
	w := newWorld(t, strict(t))
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	id := one.controller.Status().Node
	w.stop(one)
	ctx, cancel := context.WithCancel(t.Context())
	b := clustertest.Intercept(w.backend, func(ctx context.Context, what string, call func(context.Context) error) error {
		err := call(ctx)
		if what == "Nodes.Update" && ctx.Done() != nil { // the undo has a context that does not end
			cancel()
			return ctx.Err()
		}
		return err
	})
	if err := admin.NewNodes(b).Delete(ctx, id, false); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n, err := w.backend.Nodes.Get(t.Context(), id); err != nil || n.State != cluster.NodeActive {
		t.Errorf("the record is %+v, error %v; want it to be active", n, err)
	}
}

// TestNodeDeleteTwice has two administrators delete a node whose machine is off. One does not say so, and gives up
// after the other one has deleted the blocks: the node is not made active again.
func TestNodeDeleteTwice(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w, one, _ := oneBlock(t, b)
		id := one.controller.Status().Node
		w.stop(one)
		first := w.nodeAdmin()
		first.Wait = time.Second
		asked := make(chan error, 1)
		go func() { asked <- first.Delete(context.Background(), id, false) }()
		var deletion string
		w.wait("the node is asked", func() bool {
			n, err := b.Nodes.Get(t.Context(), id)
			deletion = n.Deletion
			return err == nil && n.State == cluster.NodeReleasing
		})
		second := w.nodeAdmin()
		second.RecordDelay = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- second.Delete(ctx, id, true) }()
		w.wait("the blocks are deleted", func() bool { return len(w.blocks()) == 0 })
		if err := <-asked; !errors.Is(err, admin.ErrSilent) {
			t.Errorf("error %v, want %v", err, admin.ErrSilent)
		}
		cancel()
		<-done
		if n, err := b.Nodes.Get(t.Context(), id); err != nil || n.State != cluster.NodeReleasing || !n.MachineOff || n.Deletion == deletion {
			t.Errorf("the node is %+v, error %v", n, err)
		}
	})
}

// TestNodeDeleteLateConsent has an agent's consent to a deletion arrive when somebody tries again, and the node has a
// pod by then.
func TestNodeDeleteLateConsent(t *testing.T) {
	each(t, func(t *testing.T, plain cluster.Backend) {
		w := newWorld(t, plain)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/28")
		var hold, silent atomic.Bool
		late := make(chan func() error, 1)
		w.backend = clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
			if what == "Nodes.Update" && hold.CompareAndSwap(true, false) {
				silent.Store(true)
				late <- func() error { return call(context.WithoutCancel(ctx)) }
			}
			if silent.Load() { // it does not answer a second time
				return cluster.ErrUnavailable
			}
			return call(ctx)
		})
		one := w.machine("one", 1)
		w.backend = plain
		two := w.machine("two", 2)
		w.wait("both are connected", func() bool { return one.controller.Status().Connected && two.controller.Status().Connected })
		id := one.controller.Status().Node
		hold.Store(true)
		nodes := w.nodeAdmin()
		nodes.Wait = time.Second
		if err := nodes.Delete(t.Context(), id, false); !errors.Is(err, admin.ErrSilent) {
			t.Fatalf("error %v, want %v", err, admin.ErrSilent)
		}
		send := <-late
		silent.Store(false)
		w.mustAllocate(one)
		nodes = admin.NewNodes(clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
			err := call(ctx)
			if what == "Nodes.Update" {
				_ = send()
			}
			return err
		}))
		nodes.RecordDelay = time.Millisecond
		if err := nodes.Delete(t.Context(), id, false); !errors.Is(err, admin.ErrConnected) {
			t.Errorf("error %v, want %v", err, admin.ErrConnected)
		}
		w.refused(two, multipool.ErrNoBlock)
	})
}
