package multipool_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
)

func newStrict(t *testing.T) *clustertest.Strict {
	s := clustertest.NewStrict(1)
	t.Cleanup(s.Close)
	return s
}

func strict(t *testing.T) cluster.Backend { return newStrict(t).Backend() }

// recovered reports whether no recovery is under way.
func (w *world) recovered() bool {
	r, _, err := w.backend.Info.Get(w.Context())
	return err == nil && r.Recovery == nil
}

func TestRestoreOlderBackup(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.pool("default", 28, "10.0.0.0/26")
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	backup := s.Backup()
	w.mustAllocate(two) // its block is not in the backup
	s.Restore(backup)
	w.wait("the recovery has begun", func() bool { r, _, err := w.backend.Info.Get(t.Context()); return err == nil && r.Epoch == 1 })
	w.wait("the recovery is over", w.recovered)
	if n := len(w.blocks()); n != 2 {
		t.Errorf("%d blocks after the recovery: %+v", n, w.blocks())
	}
	w.mustAllocate(one)
	w.mustAllocate(two)
}

func TestRestoreWaitsForSilentNode(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.pool("default", 28, "10.0.0.0/27") // two blocks
	one, two, three := w.machine("one", 1), w.machine("two", 2), w.machine("three", 3)
	for _, m := range []*machine{one, two, three} {
		w.wait("it is connected", func() bool { return m.controller.Status().Connected })
	}
	w.mustAllocate(one)
	backup := s.Backup()
	w.mustAllocate(two)
	two.network.Cut()
	s.Restore(backup)
	w.beginRecovery() // the others know nothing newer than the backup
	w.wait("the others know", func() bool {
		return one.controller.Status().Recovery != nil && three.controller.Status().Recovery != nil
	})
	w.refused(three, multipool.ErrRecovery)
	w.mustAllocate(one) // from its confirmed block
	two.network.Heal()
	w.wait("the recovery is over", w.recovered)
	if n := len(w.blocks()); n != 2 {
		t.Errorf("%d blocks after the recovery: %+v", n, w.blocks())
	}
}

func TestWipe(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.pool("default", 28, "10.0.0.0/26")
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	w.mustAllocate(two)
	s.Wipe()
	w.wait("the blocks in use are there again", func() bool { return len(w.blocks()) == 2 })
	w.wait("the recovery is over", w.recovered)
}

// TestSecondRestoreToSameEpoch restores a backup, and then another one, and both recoveries have the same number:
// blocks that the second backup has in a node's name, and that the node has given back, are free in the end.
func TestSecondRestoreToSameEpoch(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/27") // two blocks
	one, two := w.machine("one", 1), w.machine("two", 2)
	first := w.mustAllocate(one)
	w.wait("two is connected", func() bool { return two.controller.Status().Connected })
	id := one.controller.Status().Node
	before := s.Backup() // has the block
	w.release(one, first)
	w.wait("the block is given back", func() bool { return len(w.blocks()) == 0 })
	w.beginRecovery()
	confirmed := func() bool {
		s, err := w.backend.Sessions.Get(t.Context(), id)
		return err == nil && s.Confirmed == 1
	}
	w.wait("one has confirmed", confirmed)
	w.wait("the recovery is over", w.recovered)
	one.network.Cut()
	two.network.Cut()
	s.RestoreAhead(before)
	w.beginRecovery()
	one.network.Heal()
	two.network.Heal()
	w.wait("one has confirmed again", confirmed)
	w.wait("the recovery is over again", w.recovered)
	w.wait("no block is left that nobody knows", func() bool { return len(w.blocks()) == 0 })
}

// TestExcludeCopiesRecovery excludes a node while somebody else has the record of the cluster in hand.
func TestExcludeCopiesRecovery(t *testing.T) {
	b := strict(t)
	nodes := admin.NewNodes(b)
	if _, err := b.Info.Put(t.Context(), cluster.ClusterInfo{ID: "x", Epoch: 1, Recovery: &cluster.Recovery{}}); err != nil {
		t.Fatal(err)
	}
	before, _, err := b.Info.Get(t.Context())
	if err == nil {
		err = nodes.Exclude(t.Context(), clustertest.NodeNamed("one").ID)
	}
	after, _, err2 := b.Info.Get(t.Context())
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if len(before.Recovery.Excluded) != 0 || len(after.Recovery.Excluded) != 1 || before.Version == after.Version {
		t.Errorf("read before: %+v, after: %+v", *before.Recovery, *after.Recovery)
	}
}

// TestRestoreClaimBesideReleased restores a claim of one, which has by then another claim of that block to delete,
// while two uses the block. One deletes the restored claim, too: else two could never confirm its blocks.
func TestRestoreClaimBesideReleased(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	create := w.breakable("Blocks.Create")
	w.pool("default", 28, "10.0.0.0/28") // one block
	one, two := w.machine("one", 1), w.machine("two", 2)
	addr := w.mustAllocate(one)
	backup := s.Backup()
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
	s.Restore(backup)
	w.wait("the recovery has begun", func() bool { r, _, err := w.backend.Info.Get(t.Context()); return err == nil && r.Epoch > 0 })
	one.network.Heal()
	w.wait("the recovery is over", w.recovered)
}

// TestRestoreReleasedClaim restores a claim that one is about to delete, while two uses the block.
func TestRestoreReleasedClaim(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
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
	backup := s.Backup()
	lose.Store(true)
	w.release(one, addr)
	w.wait("the block is deleted, without an answer", func() bool { return len(w.blocks()) == 0 && len(one.controller.Status().Blocks) == 1 })
	one.network.Cut()
	lose.Store(false)
	w.mustAllocate(two)
	s.Restore(backup)
	w.wait("the recovery has begun", func() bool { r, _, err := w.backend.Info.Get(t.Context()); return err == nil && r.Epoch > 0 })
	one.network.Heal()
	w.wait("the recovery is over", w.recovered)
}

// TestExcludeEndsRecovery excludes the node that a recovery waits for, while the agents of the others have read the
// record long ago.
func TestExcludeEndsRecovery(t *testing.T) {
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
		w.refused(one, multipool.ErrRecovery)
		if err := w.nodeAdmin().Exclude(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.wait("the recovery is over", w.recovered)
		w.mustAllocate(one)
	})
}

// TestConfirmEarlierRecovery restores one backup twice: a confirmation that is under way at the second restore is none
// for that one, though both recoveries have the same epoch.
func TestConfirmEarlierRecovery(t *testing.T) {
	s := newStrict(t)
	plain := s.Backend()
	w := newWorld(t, plain)
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28")
	var hold atomic.Bool
	reached, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.backend = clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what == "Sessions.Put" && hold.CompareAndSwap(true, false) {
			close(reached)
			<-goOn
			_ = call(context.WithoutCancel(ctx))
			close(done)
			<-ctx.Done() // and then it is cut off
			return cluster.ErrUnavailable
		}
		return call(ctx)
	})
	one := w.machine("one", 1)
	w.backend = plain
	two := w.machine("two", 2)
	w.wait("they know each other", func() bool {
		return multipool.Knows(one.controller, two.controller.Status().Node) && multipool.Knows(two.controller, one.controller.Status().Node)
	})
	backup := s.Backup()
	w.mustAllocate(one) // not in the backup
	hold.Store(true)
	two.network.Cut()
	one.network.Pause()
	s.Restore(backup)
	w.beginRecovery()
	one.network.Resume()
	<-reached
	s.Restore(backup)
	w.beginRecovery()
	close(goOn)
	<-done
	two.network.Heal()
	w.refused(two, multipool.ErrRecovery)
	w.wait("two has confirmed, and waits for one", func() bool {
		r, _, err := plain.Info.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting, err := cluster.UnconfirmedNodes(t.Context(), plain, r)
		return err == nil && len(waiting) == 1 && waiting[0].Node == one.controller.Status().Node
	})
	w.refused(two, multipool.ErrRecovery)
}
