package multipool_test

import (
	"errors"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/multipool"
)

func TestNodeDelete(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		w.stop(one)
		w.refused(two, multipool.ErrNoBlock)
		nodes := w.nodeAdmin()
		if err := nodes.Delete(t.Context(), id, false); !errors.Is(err, admin.ErrMachineMayRun) || len(w.blocks()) != 1 {
			t.Errorf("a machine that may run: error %v, want %v; blocks %v", err, admin.ErrMachineMayRun, w.blocks())
		}
		if err := nodes.Delete(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		clear(w.owners) // the machine is off
		w.mu.Unlock()
		w.mustAllocate(two)
		w.wait("one node is left", func() bool {
			list, err := nodes.List(t.Context())
			return err == nil && len(list) == 1 && list[0].Node.ID.Name == "two"
		})
		w.neverRecovered()
	})
}

// TestNodeDeleteThenReturn starts the agent of a node that was deleted: it is a new incarnation.
func TestNodeDeleteThenReturn(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		w.stop(one)
		nodes := w.nodeAdmin()
		if err := nodes.Delete(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		w.start(one) // its pods have run all the time
		w.wait("it is another incarnation", func() bool {
			s := one.controller.Status()
			return s.Connected && s.Node.Key != id.Key && s.Node.Name == id.Name
		})
		w.wait("the block in use is claimed for it", func() bool {
			blocks := w.blocks()
			return len(blocks) == 1 && blocks[0].Owner == one.controller.Status().Node
		})
		w.neverRecovered()
	})
}

// TestNodeDeleteWhileOtherDown starts an agent after another node was deleted: no recovery begins.
func TestNodeDeleteWhileOtherDown(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		w.mustAllocate(two)
		w.stop(two)
		w.stop(one)
		if err := w.nodeAdmin().Delete(t.Context(), one.controller.Status().Node, true); err != nil {
			t.Fatal(err)
		}
		w.start(two)
		w.wait("two is connected", func() bool { return two.controller.Status().Connected })
		w.neverRecovered()
	})
}
