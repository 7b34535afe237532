package multipool_test

import (
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// TestBackWithOtherBlockSize deletes a node whose machine is not off, and the pool, and creates the pool again with
// smaller blocks: when the node is back, no other pod gets the address that is in use there.
func TestBackWithOtherBlockSize(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28")
	one := w.machine("one", 1)
	inUse := w.mustAllocate(one)
	id := one.controller.Status().Node
	w.stop(one)
	if err := w.nodeAdmin().Delete(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	pools := admin.NewPools(w.backend)
	w.wait("the pool is deleted", func() bool { return pools.Delete(t.Context(), "default") == nil })
	w.wait("the pool is made anew", func() bool {
		_, err := pools.Put(t.Context(), cluster.Pool{Name: "default", Prefixes: prefixes("10.0.0.0/28"), IPv4BlockBits: 30, Quarantine: time.Millisecond})
		return err == nil
	})
	w.start(one)
	w.wait("one is connected as another incarnation", func() bool {
		s := one.controller.Status()
		return s.Connected && s.Node != id
	})
	time.Sleep(300 * time.Millisecond) // a few rounds
	t.Logf("%s is in use on one; blocks in the store: %+v", inUse, w.blocks())
	two := w.machine("two", 2)
	for range 20 { // the world reports an address that is in use elsewhere
		if _, err := w.allocate(two, 300*time.Millisecond); err != nil {
			t.Log(err)
			break
		}
	}
}
