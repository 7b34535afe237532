package multipool_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/multipool"
)

func TestNodeDeleteVeto(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		one.addresses.reserve(t, "db")
		err := w.nodeAdmin().Delete(t.Context(), one.controller.Status().Node, false)
		if !errors.Is(err, multipool.ErrConnected) || !strings.Contains(err.Error(), "] by db") {
			t.Errorf("error %v, want %v with what is reserved", err, multipool.ErrConnected)
		}
		if len(w.blocks()) != 1 {
			t.Errorf("blocks %+v", w.blocks())
		}
		w.mustAllocate(one)
	})
}

func TestNodeDelete(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		w.stop(one)
		w.refused(two, multipool.ErrNoBlock)
		admin := w.nodeAdmin()
		admin.Wait = 100 * time.Millisecond
		if err := admin.Delete(t.Context(), id, false); !errors.Is(err, multipool.ErrSilent) {
			t.Errorf("an agent that is silent: error %v, want %v", err, multipool.ErrSilent)
		}
		if err := admin.Delete(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		clear(w.owners) // the machine is off
		w.mu.Unlock()
		w.mustAllocate(two)
		w.wait("one node is left", func() bool {
			list, err := admin.List(t.Context())
			return err == nil && len(list) == 1 && list[0].Node.ID.Name == "two"
		})
		if r, _, err := b.Info.Get(t.Context()); err != nil || r.Epoch != 0 {
			t.Errorf("a deleted node has begun a recovery: %+v, error %v", r, err)
		}
	})
}

// TestNodeDeleteEmpty deletes a node that has no block: its agent agrees.
func TestNodeDeleteEmpty(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/28")
		one := w.machine("one", 1)
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
		w.wait("it is deleted", func() bool {
			return w.nodeAdmin().Delete(t.Context(), one.controller.Status().Node, false) == nil
		})
		w.mustAllocate(one) // as a new incarnation
	})
}

// TestNodeDeletedComesBack starts the agent of a node that was deleted: it is a new incarnation.
func TestNodeDeletedComesBack(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		w.stop(one)
		admin := w.nodeAdmin()
		if err := admin.Delete(t.Context(), id, true); err != nil {
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
		if r, _, err := w.backend.Info.Get(t.Context()); err != nil || r.Epoch != 0 {
			t.Errorf("a deleted node has begun a recovery: %+v, error %v", r, err)
		}
	})
}

// TestNodeDeletedWhileAnotherIsDown starts an agent that has known a node which was deleted meanwhile: no recovery begins.
func TestNodeDeletedWhileAnotherIsDown(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		w.mustAllocate(two)
		w.wait("two knows one", func() bool { return multipool.Knows(two.controller, one.controller.Status().Node) })
		w.stop(two)
		w.stop(one)
		if err := w.nodeAdmin().Delete(t.Context(), one.controller.Status().Node, true); err != nil {
			t.Fatal(err)
		}
		w.start(two)
		w.wait("two is connected", func() bool { return two.controller.Status().Connected })
		if r, _, err := w.backend.Info.Get(t.Context()); err != nil || r.Epoch != 0 {
			t.Errorf("a deleted node has begun a recovery: %+v, error %v", r, err)
		}
	})
}

// TestSessionDeleted deletes what the store knows of a healthy node's agent: its blocks stay.
func TestSessionDeleted(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id, before := one.controller.Status().Node, w.blocks()
		if err := w.backend.Sessions.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.wait("the session is there again", func() bool {
			s, err := w.backend.Sessions.Get(context.Background(), id)
			return err == nil && !s.Deleting
		})
		if after := w.blocks(); len(after) != 1 || after[0] != before[0] {
			t.Errorf("blocks %+v, before %+v", after, before)
		}
		w.mustAllocate(one)
	})
}

// TestRecordDeletedBehindTheBack deletes the record of a node with blocks without its agent's consent: the agent notices, and nobody
// claims its block.
func TestNodeRecordLost(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		n, err := w.backend.Nodes.Get(t.Context(), id)
		if err == nil {
			err = w.backend.Nodes.Delete(t.Context(), n)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.wait("the record is there again", func() bool {
			n, err := w.backend.Nodes.Get(context.Background(), id)
			return err == nil && !n.Deleting
		})
		w.wait("the recovery is over", w.recovered)
		w.mustAllocate(one)
	})
}

func TestCloneReset(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		clone := w.contestedClone(one)
		w.stop(clone)
		w.forgetKey(clone)
		if err := multipool.NewNodeAdmin(w.backend).Reset(t.Context(), one.controller.Status().Node); err != nil {
			t.Fatal(err)
		}
		w.wait("the first one goes on", func() bool { return one.controller.Status().Connected && one.controller.Status().Cloned == nil })
		w.mustAllocate(one)
		w.endPods(clone)
		clone.addresses = newPlain()
		w.start(clone)
		w.mustAllocate(clone)
	})
}
