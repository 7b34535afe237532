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

// TestRecordDeletedBehindTheBack deletes the record of a node with blocks without its agent's consent: the agent
// notices, and nobody claims its block.
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

func TestContestReset(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		copied := w.contestedCopy(one)
		w.stop(copied)
		w.forgetKey(copied)
		if err := admin.NewNodes(w.backend).Reset(t.Context(), one.controller.Status().Node); err != nil {
			t.Fatal(err)
		}
		w.wait("the first one goes on", func() bool { return one.controller.Status().Connected && one.controller.Status().Contested == nil })
		w.mustAllocate(one)
		w.endPods(copied)
		copied.addresses = newPlain()
		w.start(copied)
		w.mustAllocate(copied)
	})
}

// lateClaim has a node be deleted while it claims a block, of which the record arrives afterwards. It returns the node.
func (w *world) lateClaim() cluster.NodeID {
	w.Helper()
	plain := w.backend
	sent, deleted, arrived := make(chan struct{}), make(chan struct{}), make(chan error)
	w.backend = clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what != "Blocks.Create" {
			return call(ctx)
		}
		close(sent)
		go func() {
			<-deleted
			arrived <- call(context.WithoutCancel(ctx))
		}()
		return cluster.ErrUnavailable
	})
	one := w.machine("one", 1)
	w.backend = plain
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	go func() { _, _ = w.allocate(one, time.Second) }()
	<-sent
	w.stop(one) // the machine loses its power
	id := one.controller.Status().Node
	err := w.nodeAdmin().Delete(w.Context(), id, true)
	close(deleted)
	if err := errors.Join(err, <-arrived); err != nil {
		w.Fatal(err)
	}
	w.wait("the record is gone", func() bool {
		_, err := w.backend.Nodes.Get(w.Context(), id)
		return errors.Is(err, cluster.ErrNotFound)
	})
	return id
}

// TestBlockOrphan deletes a block whose node was deleted before: with the node, or with the pool.
func TestBlockOrphan(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		for _, with := range []string{"node", "pool"} {
			w := newWorld(t, b)
			w.cfg.PreAllocate = 0
			w.pool("default", 28, "10.0.0.0/24")
			two := w.machine("two", 2)
			w.wait("two is connected", func() bool { return two.controller.Status().Connected })
			id := w.lateClaim()
			findings, err := multipool.NewChecker(b, two.controller).Examine(t.Context(), "")
			if err != nil || len(findings) != 1 || findings[0].Kind != "block-orphan" || !strings.HasSuffix(findings[0].Detail, "porin node delete one --incarnation "+id.Key) {
				t.Errorf("findings %+v, error %v", findings, err)
			}
			if with == "node" {
				found, err := w.nodeAdmin().Find(t.Context(), "one", id.Key)
				if err == nil {
					err = w.nodeAdmin().Delete(t.Context(), found.ID, false)
				}
				if err != nil {
					t.Error(err)
				}
				w.wait("the block is gone", func() bool { return len(w.blocks()) == 0 })
			}
			w.stop(two)
			if err := admin.NewPools(b).Delete(t.Context(), "default"); err != nil {
				t.Errorf("delete the pool with the %s: %v", with, err)
			}
			w.wait("pool and block are gone", func() bool {
				_, err := b.Pools.Get(t.Context(), "default")
				return errors.Is(err, cluster.ErrNotFound) && len(w.blocks()) == 0
			})
		}
	})
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
