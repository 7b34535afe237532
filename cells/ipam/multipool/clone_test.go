package multipool_test

import (
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
)

// TestCloneGivesNothingOut uses a copied machine from its first moment, while the one that it was copied from runs.
func TestCloneGivesNothingOut(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		clone := w.clone(one, 2)
		w.wait("the copy notices", func() bool {
			if addr, err := w.allocate(clone, time.Millisecond); err == nil {
				t.Fatalf("the copy gives out %s before it notices", addr)
			}
			return clone.controller.Status().Cloned != nil
		})
		w.wait("the first machine notices", func() bool { return one.controller.Status().Cloned != nil })
	})
}

// TestDiskOnAnotherMachine starts a copy of the disk on a machine with another machine-id while the first machine is cut off: the copy
// is another node, and the first one goes on.
func TestDiskOnAnotherMachine(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machineOn(&machine{name: "one", dir: t.TempDir(), machineID: "id-1"}, 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		one.network.Cut()
		other := w.cloneAs(one, "id-2", 2)
		for range 20 { // more than a block
			w.mustAllocate(other)
		}
		w.mustAllocate(one) // from its block
		one.network.Heal()
		w.wait("the first machine is connected", func() bool { return one.controller.Status().Connected })
		if err := one.controller.Status().Cloned; err != nil {
			t.Errorf("the first machine stops: %v", err)
		}
		if now := other.controller.Status().Node; now.Key == id.Key {
			t.Errorf("both machines are %s", id)
		}
	})
}

// TestMachineIDChanges starts an agent that sees another machine-id, as its container has another mount, in the same boot.
func TestMachineIDChanges(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machineOn(&machine{name: "one", dir: t.TempDir(), machineID: "id-1"}, 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		for _, machineID := range []string{"", "id-2"} {
			w.stop(one)
			one.machineID = machineID
			w.start(one)
			w.wait("it is connected", func() bool { return one.controller.Status().Connected })
			if n, err := w.backend.Nodes.Get(t.Context(), id); err != nil || n.MachineID != machineID {
				t.Errorf("the record has machine-id %q, want %q, error %v", n.MachineID, machineID, err)
			}
		}
		w.reboot(one) // with the machine-id that the record has by now
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
		if now := one.controller.Status().Node; now != id {
			t.Errorf("the node is %s after a boot, want %s", now, id)
		}
	})
}

// TestDiskOnAnotherMachineInRecovery starts the copy in a recovery, in which a machine that was booted claims its blocks anew: those of the
// copy's checkpoint are the first machine's.
func TestDiskOnAnotherMachineInRecovery(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		one.network.Cut()
		if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := w.cloneAs(one, "another", 2)
		w.wait("the copy is another node and has no block", func() bool {
			s := other.controller.Status()
			return s.Connected && s.Node != id && len(s.Blocks) == 0
		})
		if blocks := w.blocks(); len(blocks) != 1 || blocks[0].Owner != id {
			t.Errorf("the first machine's block is gone: %+v", blocks)
		}
		one.network.Heal()
		w.wait("the recovery is over", w.recovered)
	})
}

// TestDiskOnAnotherMachineAfterWipe has the copy be the first that finds the empty store.
func TestDiskOnAnotherMachineAfterWipe(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.pool("default", 28, "10.0.0.0/26")
	one := w.machineOn(&machine{name: "one", dir: t.TempDir(), machineID: "id-1"}, 1)
	w.mustAllocate(one)
	id := one.controller.Status().Node
	one.network.Cut()
	s.Wipe()
	other := w.cloneAs(one, "id-2", 2)
	w.wait("the copy is another node", func() bool { now := other.controller.Status(); return now.Connected && now.Node != id })
	one.network.Heal()
	w.wait("the first machine goes on", func() bool {
		now := one.controller.Status()
		return now.Connected && now.Node == id && now.Cloned == nil
	})
	w.wait("the recovery is over", w.recovered)
}
