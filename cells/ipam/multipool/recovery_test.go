package multipool_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

func newStrict(t *testing.T) *clustertest.Strict {
	s := clustertest.NewStrict(1)
	t.Cleanup(s.Close)
	return s
}

func strict(t *testing.T) cluster.Backend { return newStrict(t).Backend() }

// eachRestorable runs the test on stores that can be set back. A real API server is among them with FULL=1 and its
// binary.
func eachRestorable(t *testing.T, test func(t *testing.T, s *backing)) {
	t.Run("strict", func(t *testing.T) { test(t, strictBacking(t, 1)) })
	t.Run("kubernetes", func(t *testing.T) { test(t, kubernetesBacking(t)) })
	if testutil.Full() && os.Getenv(apiserver.EnvBinary) != "" {
		t.Run("apiserver", func(t *testing.T) { test(t, apiserverBacking(t, 1)) })
	}
}

func TestRestoreOlderBackup(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.pool("default", 28, "10.0.0.0/26")
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		w.wait("two is connected", func() bool { return two.controller.Status().Connected })
		s.save()
		w.mustAllocate(two) // its block is not in the backup
		s.restore()
		w.endRecovery()
		if n := len(w.blocks()); n != 2 {
			t.Errorf("%d blocks after the recovery: %+v", n, w.blocks())
		}
		w.mustAllocate(one)
		w.mustAllocate(two)
	})
}

// TestRecoveryEndRefused ends a recovery while a node is silent.
func TestRecoveryEndRefused(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one, two := w.machine("one", 1), w.machine("two", 2)
		for _, m := range []*machine{one, two} {
			w.wait("it is connected", func() bool { return m.controller.Status().Connected })
		}
		id := two.controller.Status().Node
		w.stop(two)
		w.beginRecovery()
		w.wait("one has written its blocks", func() bool { return len(w.unwritten()) == 1 })
		w.refused(one, multipool.ErrRecovery)
		if err := admin.EndRecovery(t.Context(), b, false); !errors.Is(err, admin.ErrUnwritten) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("error %v, want %v with node %s", err, admin.ErrUnwritten, id)
		}
		w.refused(one, multipool.ErrRecovery)
		if err := admin.EndRecovery(t.Context(), b, true); err != nil {
			t.Fatal(err)
		}
		w.mustAllocate(one)
		if err := admin.EndRecovery(t.Context(), b, false); !errors.Is(err, admin.ErrNoRecovery) {
			t.Errorf("error %v, want %v", err, admin.ErrNoRecovery)
		}
	})
}

// TestRestoreAnnounced restores a store after a recovery was begun, to a position that tells nothing: a node that has
// seen the recovery sets the mark again, also after a restart, and a node that knows nothing newer claims nothing.
func TestRestoreAnnounced(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.wait("both are connected", func() bool { return one.controller.Status().Connected && two.controller.Status().Connected })
		s.save()
		w.mustAllocate(two)
		before := claims(w.blocks())
		w.wait("a recovery is begun", func() bool { begun, err := one.controller.BeginRecovery(t.Context()); return begun && err == nil })
		w.wait("every node has written its blocks", func() bool { return len(w.unwritten()) == 0 })
		one.network.Cut()
		two.network.Cut()
		w.stop(one)
		s.bumped()
		w.start(one)
		one.network.Heal()
		w.refused(one, multipool.ErrRecovery)
		two.network.Heal()
		w.endRecovery()
		if now := claims(w.blocks()); !slices.Equal(now, before) {
			t.Errorf("claims %v, before the restore %v", now, before)
		}
		w.refused(one, multipool.ErrNoBlock)
	})
}

// TestRestoreOlderSession restores a store to a position that tells nothing, before the last write of a node: that one
// notices, although all its blocks are there.
func TestRestoreOlderSession(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		w.stop(one)
		w.start(one)
		s.save()
		w.wait("it has begun a session", func() bool { return one.controller.Status().Connected })
		w.stop(one)
		w.start(one)
		w.wait("it has begun another session", func() bool { return one.controller.Status().Connected })
		one.network.Cut()
		s.bumped()
		w.neverRecovered()
		one.network.Heal()
		w.endRecovery()
		w.mustAllocate(one)
	})
}

// TestRestoreBackupOfRecovery restores a backup that was made in a recovery in which a node had written its blocks: its
// writes of that time do not count.
func TestRestoreBackupOfRecovery(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/27") // two blocks
		one, two := w.machine("one", 1), w.machine("two", 2)
		for _, m := range []*machine{one, two} {
			w.wait("it is connected", func() bool { return m.controller.Status().Connected })
		}
		w.mustAllocate(one)
		w.beginRecovery()
		w.wait("both have written their blocks", func() bool { return len(w.unwritten()) == 0 })
		s.save() // a nightly one
		w.endRecovery()
		for range 16 {
			w.mustAllocate(one) // the other block, too
		}
		one.network.Cut()
		s.restore()
		w.wait("two has begun another recovery, and one has not written its blocks in it", func() bool {
			list := w.unwritten()
			return len(list) == 1 && list[0].Node == one.controller.Status().Node
		})
		w.refused(two, multipool.ErrRecovery)
		one.network.Heal()
		w.endRecovery()
		if n := len(w.blocks()); n != 2 {
			t.Errorf("%d blocks after the recovery: %+v", n, w.blocks())
		}
		w.refused(two, multipool.ErrNoBlock)
	})
}

func TestRestoreWaitsForSilentNode(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.pool("default", 28, "10.0.0.0/27") // two blocks
		one, two, three := w.machine("one", 1), w.machine("two", 2), w.machine("three", 3)
		for _, m := range []*machine{one, two, three} {
			w.wait("it is connected", func() bool { return m.controller.Status().Connected })
		}
		w.mustAllocate(one)
		s.save()
		w.mustAllocate(two)
		two.network.Cut()
		s.restore()
		w.beginRecovery() // the others know nothing newer than the backup
		w.wait("the others know", func() bool {
			return one.controller.Status().Recovery != nil && three.controller.Status().Recovery != nil
		})
		w.refused(three, multipool.ErrRecovery)
		w.mustAllocate(one) // from its own block
		two.network.Heal()
		w.endRecovery()
		if n := len(w.blocks()); n != 2 {
			t.Errorf("%d blocks after the recovery: %+v", n, w.blocks())
		}
	})
}

// claims are the claim IDs of the blocks.
func claims(blocks []cluster.Block) (ids []string) {
	for _, b := range cluster.SortedBlocks(blocks) {
		ids = append(ids, b.Claim)
	}
	return ids
}

// TestWipe has each node create its claims again, with their IDs, and an administrator create the pool again: nodes go
// on with the blocks that they have.
func TestWipe(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.pool("default", 28, "10.0.0.0/26")
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		w.mustAllocate(two)
		before := claims(w.blocks())
		s.wipe()
		w.wait("the claims are there again", func() bool { return slices.Equal(claims(w.blocks()), before) })
		w.wait("both have written their blocks", func() bool { return one.controller.Status().Written && two.controller.Status().Written })
		w.endRecovery()
		w.pool("default", 28, "10.0.0.0/26")
		w.mustAllocate(one)
	})
}

// TestRestoreClaimBesideReleased restores a claim of one, which now has another claim of that block to delete, while
// two uses the block. One deletes the restored claim, too: else two could never write its own.
func TestRestoreClaimBesideReleased(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.cfg.PreAllocate = 0
		create := w.breakable("Blocks.Create")
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		addr := w.mustAllocate(one)
		s.save()
		w.release(one, addr)
		w.wait("the block is given back", func() bool { return len(w.blocks()) == 0 && len(one.controller.Status().Blocks) == 0 })
		create.failNext(1)
		_, _ = w.allocate(one, time.Second) // its claim has no answer, and is to be deleted for a while
		w.wait("the claim is to be deleted", func() bool {
			all := one.controller.Status().Blocks
			return len(all) == 1 && all[0].State == "released"
		})
		one.network.Cut()
		w.mustAllocate(two)
		s.restore()
		w.wait("the recovery has begun", w.recovering)
		one.network.Heal()
		w.endRecovery()
	})
}

// TestRestoreReleasedClaim restores a claim that one is about to delete, while two uses the block.
func TestRestoreReleasedClaim(t *testing.T) {
	eachRestorable(t, func(t *testing.T, s *backing) {
		w := newWorld(t, s.Backend)
		w.cfg.PreAllocate = 0
		var lose atomic.Bool
		w.backend = clustertest.Intercept(w.backend, func(ctx context.Context, what string, call func(context.Context) error) error {
			err := call(ctx)
			if what == "Blocks.Delete" && lose.Load() {
				return cluster.ErrUnavailable
			}
			return err
		})
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		addr := w.mustAllocate(one)
		s.save()
		lose.Store(true)
		w.release(one, addr)
		w.wait("the block is deleted, without an answer", func() bool { return len(w.blocks()) == 0 && len(one.controller.Status().Blocks) == 1 })
		one.network.Cut()
		lose.Store(false)
		w.mustAllocate(two)
		s.restore()
		w.wait("the recovery has begun", w.recovering)
		one.network.Heal()
		w.endRecovery()
	})
}

// TestRestoreBumpedRevisions restores a store so that versions go on above all earlier ones, before a claim of a node,
// and before a start of its agent: the node notices.
func TestRestoreBumpedRevisions(t *testing.T) {
	for name, after := range map[string]func(w *world, m *machine){
		"claim": func(w *world, m *machine) {
			before := len(w.blocks())
			for len(w.blocks()) == before {
				w.mustAllocate(m)
			}
		},
		"session": func(w *world, m *machine) {
			w.stop(m)
			w.start(m)
			w.wait("it has begun another session", func() bool { return m.controller.Status().Connected })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := kubernetesBacking(t)
			w := newWorld(t, s.Backend)
			w.cfg.PreAllocate = 0
			w.pool("default", 28, "10.0.0.0/24")
			one := w.machine("one", 1)
			w.mustAllocate(one)
			w.stop(one)
			w.start(one)
			w.wait("it has begun a session", func() bool { return one.controller.Status().Connected })
			s.save()
			after(w, one)
			before := claims(w.blocks())
			w.neverRecovered()
			s.bumped()
			w.endRecovery()
			if now := claims(w.blocks()); !slices.Equal(now, before) {
				t.Errorf("claims %v, before the restore %v", now, before)
			}
			w.mustAllocate(one)
		})
	}
}
