package multipool_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
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
	if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil { // the others know nothing newer than the backup
		t.Fatal(err)
	}
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

func TestCloneStopsAllocating(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/26")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.contestedClone(one)
	if addr, ok := one.addresses.allocate(cluster.IPv4, func(netip.Addr) {}); ok {
		t.Errorf("%s is given out", addr)
	}
}

// TestBeginRecoveryInEmptyStore does what the documentation says when etcd is begun anew: the mark is there before an agent is.
func TestBeginRecoveryInEmptyStore(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil {
			t.Fatalf("mark an empty store: %v", err)
		}
		if r, _, err := b.Info.Get(t.Context()); err != nil || r.Recovery == nil || r.ID == "" || r.Epoch == 0 {
			t.Errorf("the record of the cluster is %+v, error %v; want a recovery with an identity and an epoch", r, err)
		}
		w.pool("default", 28, "10.0.0.0/24")
		w.mustAllocate(w.machine("one", 1))
	})
}

// TestSecondRestoreToSameEpoch restores a backup, and then another one, and both recoveries have the same number: blocks that the second
// backup has in a node's name, and that the node has given back, are free in the end.
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
	if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil {
		t.Fatal(err)
	}
	confirmed := func() bool {
		s, err := w.backend.Sessions.Get(t.Context(), id)
		return err == nil && s.Confirmed == 1
	}
	w.wait("one has confirmed", confirmed)
	w.wait("the recovery is over", w.recovered)
	one.network.Cut()
	two.network.Cut()
	s.RestoreAhead(before)
	if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil {
		t.Fatal(err)
	}
	one.network.Heal()
	two.network.Heal()
	w.wait("one has confirmed again", confirmed)
	w.wait("the recovery is over again", w.recovered)
	w.wait("no block is left that nobody knows", func() bool { return len(w.blocks()) == 0 })
}

// TestExcludeLeavesWhatWasRead excludes a node while somebody else has the record of the cluster in hand.
func TestExcludeLeavesWhatWasRead(t *testing.T) {
	b := strict(t)
	admin := multipool.NewNodeAdmin(b)
	if err := admin.BeginRecovery(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, _, err := b.Info.Get(t.Context())
	if err == nil {
		err = admin.Exclude(t.Context(), clustertest.NodeNamed("one").ID)
	}
	after, _, err2 := b.Info.Get(t.Context())
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if len(before.Recovery.Excluded) != 0 || len(after.Recovery.Excluded) != 1 || before.Version == after.Version {
		t.Errorf("read before: %+v, after: %+v", *before.Recovery, *after.Recovery)
	}
}

// TestRestoredClaimBesideReleased restores a claim of one, which has by then another claim of that block to delete, while two uses the block.
// One deletes the restored claim, too: else two could never confirm its blocks.
func TestRestoredClaimBesideReleased(t *testing.T) {
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

// TestRestoredClaimThatIsReleased restores a claim that one is about to delete, while two uses the block.
func TestRestoredClaimThatIsReleased(t *testing.T) {
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
