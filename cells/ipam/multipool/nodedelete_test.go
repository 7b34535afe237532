package multipool_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
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
		if !errors.Is(err, admin.ErrConnected) || !strings.Contains(err.Error(), "] by db") {
			t.Errorf("error %v, want %v with what is reserved", err, admin.ErrConnected)
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
		nodes := w.nodeAdmin()
		nodes.Wait = 100 * time.Millisecond
		if err := nodes.Delete(t.Context(), id, false); !errors.Is(err, admin.ErrSilent) {
			t.Errorf("an agent that is silent: error %v, want %v", err, admin.ErrSilent)
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
		if r, _, err := w.backend.Info.Get(t.Context()); err != nil || r.Epoch != 0 {
			t.Errorf("a deleted node has begun a recovery: %+v, error %v", r, err)
		}
	})
}

// TestNodeDeleteWhileOtherDown starts an agent that has known a node which was deleted meanwhile: no recovery begins.
func TestNodeDeleteWhileOtherDown(t *testing.T) {
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

// TestNodeDeleteLostCheckpoint asks an agent for its consent whose checkpoint was lost, but not its key: it has no
// block that it knows of, and pods.
func TestNodeDeleteLostCheckpoint(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w, one, two := oneBlock(t, b)
		id := one.controller.Status().Node
		w.stop(one)
		if err := os.Remove(filepath.Join(one.dir, "multipool.json")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.nodeAdmin().Delete(context.Background(), id, false) }()
		w.wait("the node is to be deleted", func() bool {
			n, err := b.Nodes.Get(t.Context(), id)
			return err == nil && n.State == cluster.NodeReleasing
		})
		w.start(one)
		if err := <-done; !errors.Is(err, admin.ErrConnected) {
			t.Errorf("error %v, want %v", err, admin.ErrConnected)
		}
		w.refused(two, multipool.ErrNoBlock)
	})
}

// TestNodeDeleteWhileConnecting deletes a node between two reads of its agent: no recovery begins for that.
func TestNodeDeleteWhileConnecting(t *testing.T) {
	each(t, func(t *testing.T, plain cluster.Backend) {
		w := newWorld(t, plain)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/24")
		var agreed, once atomic.Bool
		var id cluster.NodeID
		w.backend = clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
			if what == "Nodes.Get" && agreed.Load() && once.CompareAndSwap(false, true) {
				w.wait("it is deleted", func() bool {
					_, err := plain.Nodes.Get(context.Background(), id)
					return errors.Is(err, cluster.ErrNotFound)
				})
			}
			err := call(ctx)
			if what == "Nodes.Update" && err == nil {
				agreed.Store(true)
			}
			return err
		})
		one := w.machine("one", 1)
		w.backend = plain
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
		id = one.controller.Status().Node
		if err := w.nodeAdmin().Delete(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		w.wait("it is another node", func() bool { s := one.controller.Status(); return s.Connected && s.Node != id })
		r, _, err := plain.Info.Get(t.Context())
		if err != nil || r.Epoch > 0 || !slices.Contains(r.Removed, id.Key) {
			t.Errorf("the record is %+v, error %v: want no recovery", r, err)
		}
	})
}
