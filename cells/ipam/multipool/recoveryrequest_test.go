package multipool_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"porin.dev/porin/cells/ipam/multipool"
)

// TestRecoveryRequestNotRemovable has a request that cannot be removed, as on a disk that is read-only: it begins one
// recovery, and a later request another one.
func TestRecoveryRequestNotRemovable(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	one := &machine{name: "one", dir: t.TempDir(), machineID: "one"}
	path := filepath.Join(one.dir, "begin-recovery")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil { // cannot be removed as a file
		t.Fatal(err)
	}
	w.machineOn(one, 1)
	epoch := func() uint64 {
		r, _, err := w.backend.Info.Get(t.Context())
		if err != nil || r.Recovery != nil {
			return 0
		}
		return r.Epoch
	}
	w.wait("the recovery has begun and is over", func() bool { return epoch() > 0 })
	w.mustAllocate(one)
	w.rounds(one, 20)
	if n := epoch(); n != 1 {
		t.Errorf("one request began %d recoveries", n)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if begun, err := one.controller.BeginRecovery(t.Context()); !begun || err != nil {
		t.Errorf("a later request: begun %t, error %v", begun, err)
	}
	w.wait("another recovery has begun and is over", func() bool { return epoch() == 2 })
}

// TestBeginRecoveryNotStarted asks an agent whose checkpoint is damaged.
func TestBeginRecoveryNotStarted(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.Node, w.cfg.Dir = "one", t.TempDir()
	if err := os.WriteFile(filepath.Join(w.cfg.Dir, "multipool.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := multipool.New(w.cfg, w.backend, newPlain().Allocator, new(machine).clock, w.log)
	if err != nil {
		t.Fatal(err)
	}
	fault := multipool.StartAs(c, "boot", "one")
	if begun, err := c.BeginRecovery(t.Context()); begun || fault == nil || !errors.Is(err, fault) {
		t.Errorf("begun %t, error %v, want %v", begun, err, fault)
	}
	if _, err := os.Stat(filepath.Join(w.cfg.Dir, "begin-recovery")); err == nil {
		t.Error("what was refused is noted")
	}
}
