package multipool_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/multipool"
)

// TestContestStopsBoth uses a copied machine from its first moment, while the original runs.
func TestContestStopsBoth(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		copied := w.copyOf(one, 2)
		w.wait("the copy notices", func() bool {
			if addr, err := w.allocate(copied, time.Millisecond); err == nil {
				t.Fatalf("the copy gives out %s before it notices", addr)
			}
			return copied.controller.Status().Contested != nil
		})
		w.wait("the first machine notices", func() bool { return one.controller.Status().Contested != nil })
	})
}

func TestContestStopsFirstMachine(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/26")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.contestedCopy(one)
	if addr, ok := one.addresses.allocate(cluster.IPv4, func(netip.Addr) {}); ok {
		t.Errorf("%s is given out", addr)
	}
}

// TestContestHint reads what people are to run.
func TestContestHint(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/26")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.contestedCopy(one)
	s := one.controller.Status()
	if want := fmt.Sprintf("then run porin node reset one --incarnation %s", s.Node.Key); !strings.HasSuffix(s.Contested.Error(), want) {
		t.Errorf("the error is %q, want %q at its end", s.Contested, want)
	}
}

// TestMovedDisk starts a copy of the disk on a machine with another machine-id while the first machine is cut off: the
// copy is another node, and the first one goes on.
func TestMovedDisk(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machineOn(&machine{name: "one", dir: t.TempDir(), machineID: "id-1"}, 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		one.network.Cut()
		other := w.copyOn(one, "id-2", 2)
		for range 20 { // more than a block
			w.mustAllocate(other)
		}
		w.mustAllocate(one) // from its block
		one.network.Heal()
		w.wait("the first machine is connected", func() bool { return one.controller.Status().Connected })
		if err := one.controller.Status().Contested; err != nil {
			t.Errorf("the first machine stops: %v", err)
		}
		if now := other.controller.Status().Node; now.Key == id.Key {
			t.Errorf("both machines are %s", id)
		}
	})
}

// TestMachineIDChanged starts an agent that sees another machine-id, as its container has another mount, in the same
// boot.
func TestMachineIDChanged(t *testing.T) {
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

// TestMovedDiskInRecovery starts the copy in a recovery. A machine that was booted then claims its blocks again: the
// blocks of the copy's checkpoint are the first machine's.
func TestMovedDiskInRecovery(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/26")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		one.network.Cut()
		w.beginRecovery()
		other := w.copyOn(one, "another", 2)
		w.wait("the copy is another node and has no block", func() bool {
			s := other.controller.Status()
			return s.Connected && s.Node != id && len(s.Blocks) == 0
		})
		if blocks := w.blocks(); len(blocks) != 1 || blocks[0].Owner != id {
			t.Errorf("the first machine's block is gone: %+v", blocks)
		}
		one.network.Heal()
		w.endRecovery()
	})
}

// TestMovedDiskAfterWipe: the copy is the first to find the empty store.
func TestMovedDiskAfterWipe(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.pool("default", 28, "10.0.0.0/26")
	one := w.machineOn(&machine{name: "one", dir: t.TempDir(), machineID: "id-1"}, 1)
	w.mustAllocate(one)
	id := one.controller.Status().Node
	one.network.Cut()
	s.Wipe()
	other := w.copyOn(one, "id-2", 2)
	w.wait("the copy is another node", func() bool { now := other.controller.Status(); return now.Connected && now.Node != id })
	one.network.Heal()
	w.wait("the first machine goes on", func() bool {
		now := one.controller.Status()
		return now.Connected && now.Node == id && now.Contested == nil
	})
	w.endRecovery()
}

// TestCopiedKey starts a machine that has a copy of another one's key, and nothing else of its disk.
func TestCopiedKey(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w, one, two := oneBlock(t, b)
		dir := t.TempDir()
		text, err := os.ReadFile(filepath.Join(one.dir, "node-key"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "node-key"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.machineOn(&machine{name: "one", dir: dir, machineID: one.machineID, copied: true}, 3)
		w.wait("the first machine notices", func() bool { return one.controller.Status().Contested != nil })
		w.refused(two, multipool.ErrNoBlock)
	})
}

// TestRemovedKey starts a machine whose node was deleted, with another name or without a checkpoint: it gets another
// key, as other nodes delete the blocks of a removed node.
func TestRemovedKey(t *testing.T) {
	for name, change := range map[string]func(*world, *machine){
		"renamed": func(_ *world, m *machine) { m.name = "uno" },
		"checkpoint lost": func(w *world, m *machine) {
			if err := os.Remove(filepath.Join(m.dir, "multipool.json")); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, strict(t))
			w.pool("default", 28, "10.0.0.0/28")
			one := w.machine("one", 1)
			w.wait("it is connected", func() bool { return one.controller.Status().Connected })
			id := one.controller.Status().Node
			w.stop(one)
			if err := w.nodeAdmin().Delete(t.Context(), id, true); err != nil {
				t.Fatal(err)
			}
			change(w, one)
			w.start(one)
			w.mustAllocate(one)
			if now := one.controller.Status().Node; now.Key == id.Key || now.Name != one.name {
				t.Errorf("it was %s and is %s", id, now)
			}
		})
	}
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
