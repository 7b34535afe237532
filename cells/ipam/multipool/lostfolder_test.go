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

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/multipool"
)

// loseFolder has the machine lose what its agent remembers, while its pods run. It returns the node that the machine
// was.
func (w *world) loseFolder(m *machine) cluster.NodeID {
	w.Helper()
	former := m.controller.Status().Node
	w.stop(m)
	files, err := filepath.Glob(filepath.Join(m.dir, "*"))
	for _, path := range files {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		w.Fatal(err)
	}
	w.start(m)
	return former
}

// TestLostFolder deletes the node that a machine was before it lost its folder. Its pods run still: no other node may
// get their addresses.
func TestLostFolder(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		addr := w.mustAllocate(one)
		former := w.loseFolder(one)
		w.wait("the block is in conflict", func() bool { return multipool.HasUnownedBlocks(one.controller) })
		err := w.nodeAdmin().Delete(t.Context(), former, true)
		if now := one.controller.Status().Node; !errors.Is(err, admin.ErrBlocksInUse) || !strings.Contains(err.Error(), now.String()) {
			t.Errorf("error %v, want %v with node %s", err, admin.ErrBlocksInUse, now)
		}
		w.refused(two, multipool.ErrNoBlock)
		w.release(one, addr)
		w.wait("the former node is deleted", func() bool { return w.nodeAdmin().Delete(t.Context(), former, true) == nil })
		w.mustAllocate(two)
	})
}

// TestLostFolderDeletedNode deletes the node first: when the machine is back, the addresses that its pods use are its
// own again.
func TestLostFolderDeletedNode(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		former := one.controller.Status().Node
		w.stop(one)
		if err := w.nodeAdmin().Delete(t.Context(), former, true); err != nil {
			t.Fatal(err)
		}
		w.loseFolder(one)
		w.wait("the block is claimed", func() bool {
			all := w.blocks()
			return len(all) == 1 && all[0].Owner == one.controller.Status().Node
		})
		w.refused(two, multipool.ErrNoBlock)
	})
}

// TestLostFolderInRecovery deletes the node that the machine was in a recovery: the blocks that its pods use are the
// machine's again.
func TestLostFolderInRecovery(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/28") // one block
		one, two := w.machine("one", 1), w.machine("two", 2)
		w.mustAllocate(one)
		former := w.loseFolder(one)
		w.wait("the block is in conflict", func() bool { return multipool.HasUnownedBlocks(one.controller) })
		w.beginRecovery()
		if err := w.nodeAdmin().Delete(t.Context(), former, true); err != nil {
			t.Fatal(err)
		}
		w.endRecovery()
		if all := w.blocks(); len(all) != 1 || all[0].Owner != one.controller.Status().Node {
			t.Errorf("blocks %+v", all)
		}
		w.refused(two, multipool.ErrNoBlock)
		w.mustAllocate(one)
	})
}

// TestRecoveryNamesConflicts lists a node that uses addresses of another one's block, and the other one.
func TestRecoveryNamesConflicts(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/28")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	former := w.loseFolder(one)
	w.wait("the block is in conflict", func() bool { return multipool.HasUnownedBlocks(one.controller) })
	w.beginRecovery()
	w.wait("the recovery names the conflict", func() bool {
		for _, n := range w.unwritten() {
			if n.Node == one.controller.Status().Node && len(n.OtherOwners) == 1 && n.OtherOwners[0] == former.String() {
				return true
			}
		}
		return false
	})
}

// TestRecoveryBeforeContact wants a recovery while the store is away: the agent begins it before it claims for a pod
// that waits.
func TestRecoveryBeforeContact(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.wait("both are connected", func() bool { return one.controller.Status().Connected && two.controller.Status().Connected })
	backup := s.Backup()
	w.mustAllocate(two)
	one.network.Cut()
	two.network.Cut()
	s.RestoreAhead(backup) // its position does not show that the store was rolled back
	begun, err := one.controller.BeginRecovery(t.Context())
	if begun || err != nil {
		t.Errorf("without the store: begun %t, error %v", begun, err)
	}
	w.stop(one)
	w.start(one) // an agent that starts later does it, too
	waits := make(chan error)
	go func() { waits <- one.controller.Refill(t.Context(), multipool.DefaultPool) }()
	one.network.Heal()
	if err := <-waits; err == nil {
		t.Errorf("a block was claimed: %+v", w.blocks())
	}
	w.refused(one, multipool.ErrRecovery)
	two.network.Heal()
	w.endRecovery()
	if all := w.blocks(); len(all) != 1 || all[0].Owner != two.controller.Status().Node {
		t.Errorf("blocks %+v", all)
	}
	if r, _, err := w.backend.Info.Get(t.Context()); err != nil || len(r.EndedRecoveries) != 1 {
		t.Errorf("the record is %+v, error %v: want one recovery", r, err)
	}
}

// TestBeginRecovery begins one at once when the store answers.
func TestBeginRecovery(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		one := w.machine("one", 1)
		var begun bool
		w.wait("a recovery is begun", func() bool {
			var err error
			if begun, err = one.controller.BeginRecovery(t.Context()); err != nil {
				t.Fatal(err)
			}
			return begun
		})
		w.endRecovery()
	})
}

// TestBeginRecoveryNotStarted asks an agent whose checkpoint is damaged.
func TestBeginRecoveryNotStarted(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.Node, w.cfg.Dir = "one", t.TempDir()
	if err := os.WriteFile(filepath.Join(w.cfg.Dir, "multipool.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := multipool.New(w.cfg, w.backend, nil, newPlain().Allocator, new(machine).clock, w.log)
	if err != nil {
		t.Fatal(err)
	}
	fault := multipool.StartAs(c, "boot", "one")
	if begun, err := c.BeginRecovery(t.Context()); begun || fault == nil || !errors.Is(err, fault) {
		t.Errorf("begun %t, error %v, want %v", begun, err, fault)
	}
}

// TestBeginRecoveryNotSaved asks an agent that cannot write its checkpoint.
func TestBeginRecoveryNotSaved(t *testing.T) {
	w := newWorld(t, strict(t))
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	one.network.Cut()
	mend := w.breakDisk(one)
	defer mend()
	if begun, err := one.controller.BeginRecovery(t.Context()); begun || err == nil || one.controller.RecoveryRequested() {
		t.Errorf("begun %t, error %v, requested %t: want an error", begun, err, one.controller.RecoveryRequested())
	}
}

// TestSessionNamesOtherOwners reads each session that a machine writes after it has lost its folder: from the first one
// on they name the node that it was.
func TestSessionNamesOtherOwners(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/28") // one block
	var former atomic.Value
	w.backend.Sessions = sessionsWithConflicts{w.backend.Sessions, t, &former}
	one := w.machine("one", 1)
	w.mustAllocate(one)
	former.Store(one.controller.Status().Node)
	w.loseFolder(one)
	w.wait("the block is in conflict", func() bool { return multipool.HasUnownedBlocks(one.controller) })
}

// sessionsWithConflicts expects every session to name the node, when there is one.
type sessionsWithConflicts struct {
	cluster.Sessions
	t    *testing.T
	node *atomic.Value
}

func (s sessionsWithConflicts) Put(ctx context.Context, session cluster.Session) (cluster.Session, error) {
	if former, ok := s.node.Load().(cluster.NodeID); ok && !slices.Contains(session.OtherOwners, former.String()) {
		s.t.Errorf("a session without the conflict: %+v", session)
	}
	return s.Sessions.Put(ctx, session)
}
