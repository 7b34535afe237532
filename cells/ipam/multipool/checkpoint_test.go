package multipool_test

import (
	"net/netip"
	"os"
	"testing"
	"time"
)

// TestCheckpointWriteFails takes the folder of the checkpoint away: nothing is claimed or given back that the next
// agent would not know, and what is owned is given out.
func TestCheckpointWriteFails(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 30, "10.0.0.0/26")
	one := w.machine("one", 1)
	addr := w.mustAllocate(one)
	away := one.dir + ".away"
	if err := os.Rename(one.dir, away); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the rest of its block
		w.mustAllocate(one)
	}
	if addr, err := w.allocate(one, time.Second); err == nil {
		t.Errorf("%s is given out of a block that no checkpoint has", addr)
	}
	w.endPods(one)
	own := netip.PrefixFrom(addr, 30).Masked()
	for end := time.Now().Add(5 * w.cfg.IdleTime); time.Now().Before(end); time.Sleep(w.cfg.IdleTime / 10) {
		if _, err := w.backend.Blocks.Get(t.Context(), own); err != nil {
			t.Fatalf("a block was given back that the checkpoint says is owned: %v", err)
		}
	}
	if err := os.Rename(away, one.dir); err != nil {
		t.Fatal(err)
	}
	w.wait("the idle blocks are given back", func() bool { return len(w.blocks()) == 0 })
	w.mustAllocate(one)
}
