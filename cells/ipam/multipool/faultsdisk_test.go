package multipool_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
)

// TestCheckpointMovedAway does what the error message of a damaged checkpoint says; the key stays, and the pods run.
func TestCheckpointMovedAway(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/27") // two blocks
	one, two := w.machine("one", 1), w.machine("two", 2)
	for range 17 {
		w.mustAllocate(one)
	}
	w.stop(one)
	if err := os.Remove(filepath.Join(one.dir, "multipool.json")); err != nil {
		t.Fatal(err)
	}
	w.start(one)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end) && !t.Failed(); {
		_, _ = w.allocate(one, 50*time.Millisecond)
		_, _ = w.allocate(two, 50*time.Millisecond)
	}
}

// breakDisk has every write of the machine's checkpoint fail until mend.
func (w *world) breakDisk(m *machine) (mend func()) {
	if err := os.Rename(m.dir, m.dir+".away"); err != nil {
		w.Error(err)
	}
	return func() {
		if err := os.Rename(m.dir+".away", m.dir); err != nil {
			w.Error(err)
		}
	}
}

func TestReleaseNotSaved(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	mend := w.breakDisk(one) // the disk is full
	w.endPods(one)
	gone := false
	for end := time.Now().Add(5 * time.Second); !gone && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		gone = len(w.blocks()) == 0
	}
	if !gone {
		mend()
		return // the block stays until the disk has the release: right
	}
	w.mustAllocate(two)
	w.stop(one) // killed, as by the kubelet for disk pressure
	mend()      // what is on the disk can be read
	w.start(one)
	_, _ = w.allocate(one, 100*time.Millisecond)
}

func TestClaimNotSaved(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	two := w.machine("two", 2)
	var one *machine
	var mend func()
	w.backend = clustertest.Intercept(w.backend, func(ctx context.Context, what string, call func(context.Context) error) error {
		err := call(ctx)
		if what == "Blocks.Create" && err == nil && mend == nil {
			mend = w.breakDisk(one)
		}
		return err
	})
	one = w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	var err error
	for range 5 {
		if _, err = w.allocate(one, time.Second); err == nil {
			break
		}
	}
	w.stop(one)
	mend()
	if err != nil {
		return // nothing is given out of a block that the disk does not have: right
	}
	w.start(one) // its pod runs
	end := time.Now().Add(3 * time.Second)
	for time.Now().Before(end) && !t.Failed() {
		_, _ = w.allocate(two, 100*time.Millisecond)
	}
}

func TestBootSavedAfterReconcile(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	two := w.machine("two", 2)
	plain := w.backend
	get := w.breakable("Nodes.Get")
	one := w.machine("one", 1)
	w.backend = plain
	w.mustAllocate(one)
	id := one.controller.Status().Node
	w.stop(one)
	w.endPods(one) // the machine is off
	one.boots++
	if err := w.nodeAdmin().Delete(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	w.mustAllocate(two) // the address that one had
	get.fail()
	w.start(one) // after the boot; the store answers the first call alone
	w.wait("the position is saved, which comes before the node's record", func() bool { return get.failed.Load() > 1 })
	w.stop(one) // the agent crashes or is upgraded
	one.network.Cut()
	w.start(one)
	_, _ = w.allocate(one, 100*time.Millisecond)
}

func TestClaimDiskFull(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/26") // four blocks
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	mend := w.breakDisk(one)
	for range 12 {
		_, _ = w.allocate(one, 50*time.Millisecond)
	}
	mend()
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err = w.allocate(one, 100*time.Millisecond); err == nil {
			return
		}
	}
	t.Errorf("all blocks are free, and the node gets none: %v; %+v; in the store: %v", err, one.controller.Status().Blocks, w.blocks())
}

// TestTwoAgentsOneFolder starts another agent with the folder of a running one, as with two agents that share a
// --store-dir.
func TestTwoAgentsOneFolder(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/26")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	cfg := w.cfg
	cfg.Node, cfg.Dir = one.name, one.dir
	addresses := newPlain()
	another, err := multipool.New(cfg, w.backend, nil, addresses.Allocator, one.clock, w.log)
	if err != nil {
		t.Fatal(err)
	}
	start := func() error { return multipool.StartAs(another, filepath.Base(one.dir)+"-boot-0", "") }
	if err := start(); !errors.Is(err, multipool.ErrFolderInUse) {
		t.Errorf("the other agent starts with error %v, want %v", err, multipool.ErrFolderInUse)
	}
	if addr, ok := addresses.allocate(cluster.IPv4, func(netip.Addr) {}); ok {
		t.Errorf("the other agent gives out %s", addr)
	}
	if err := another.Refill(t.Context(), multipool.DefaultPool); !errors.Is(err, multipool.ErrFolderInUse) {
		t.Errorf("an ADD ends with error %v, want %v", err, multipool.ErrFolderInUse)
	}
	if err := another.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	w.stop(one)
	w.start(one)
	w.mustAllocate(one)
}
