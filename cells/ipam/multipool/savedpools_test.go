package multipool_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/multipool"
)

// put changes the pool as an administrator does.
func (w *world) put(p cluster.Pool) cluster.Pool {
	w.Helper()
	p.Version = ""
	p, err := admin.NewPools(w.backend).Put(w.Context(), p)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// TestRestartSavedPools changes pools while a node has blocks of them, and restarts its agent without the store:
// nothing is given out that the changes forbid.
func TestRestartSavedPools(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	p := w.pool("default", 28, "10.0.0.0/28", "10.0.1.0/28")
	one := w.machine("one", 1)
	first := w.mustAllocate(one)
	block := netip.PrefixFrom(first, 28).Masked()
	free := func() (n int64) {
		for _, b := range one.addresses.Pools().Blocks("default") {
			if !b.Drained {
				n += b.Free
			}
		}
		return n
	}
	restart := func() {
		one.network.Cut()
		w.stop(one)
		w.start(one)
	}
	for _, change := range []func(){
		func() { p.Exclude = []netip.Prefix{block} },
		func() { p.Exclude, p.Disabled = nil, true },
		func() {
			p.Disabled = false
			p.Prefixes = slices.DeleteFunc(slices.Clone(p.Prefixes), func(has netip.Prefix) bool { return has == block })
		},
	} {
		change()
		w.put(p)
		w.wait("nothing more is given out", func() bool { return free() == 0 })
		restart()
		if n := free(); n != 0 {
			t.Errorf("%d addresses can be given out after a restart without the store, of pool %+v", n, p)
		}
		one.network.Heal()
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	}
}

// TestSavedPoolDeleted deletes pools while the agent runs and while it does not, and creates one of them again.
func TestSavedPoolDeleted(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	for i, name := range []string{"a", "b", "c"} {
		w.pool(name, 28, []string{"10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24"}[i])
	}
	one := w.machine("one", 1)
	w.wait("the node has the pools", func() bool { return multipool.Saved(one.controller, "c").UID != "" })
	pools := admin.NewPools(w.backend)
	remove := func(name string) {
		w.wait(name+" is deleted", func() bool { return pools.Delete(t.Context(), name) == nil })
	}
	remove("a")
	w.wait("the node has the pool no more", func() bool { return multipool.Saved(one.controller, "a").UID == "" })
	w.stop(one)
	remove("b")
	remove("c")
	w.wait("it is gone", func() bool { _, err := pools.Get(t.Context(), "c"); return errors.Is(err, admin.ErrNoPool) })
	fresh := w.pool("c", 28, "10.4.0.0/24")
	w.start(one)
	w.wait("the node has the pools as they are", func() bool {
		return multipool.Saved(one.controller, "b").UID == "" && multipool.Saved(one.controller, "c").UID == fresh.UID
	})
	w.mustAllocate(one)
	w.neverRecovered()
}

// TestPoolCreateLost creates a pool that the store has lost while nodes have blocks of it: it is the same pool, unless
// its blocks have another size.
func TestPoolCreateLost(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		before := w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		if err := b.Pools.Delete(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		pools := admin.NewPools(b)
		w.wait("it is gone", func() bool { _, err := pools.Get(t.Context(), "default"); return errors.Is(err, admin.ErrNoPool) })
		drained := func() bool {
			blocks := one.addresses.Pools().Blocks("default")
			return len(blocks) == 1 && blocks[0].Drained
		}
		w.wait("the node knows that", drained)
		other := cluster.Pool{Name: "default", Prefixes: before.Prefixes, IPv4BlockBits: 27}
		if _, err := pools.Put(t.Context(), other); !errors.Is(err, admin.ErrOverlap) {
			t.Errorf("larger blocks: error %v, want %v", err, admin.ErrOverlap)
		}
		other.Name, other.IPv4BlockBits = "another", 28
		if _, err := pools.Put(t.Context(), other); !errors.Is(err, admin.ErrOverlap) {
			t.Errorf("another name: error %v, want %v", err, admin.ErrOverlap)
		}
		w.wait("the pool is the same again", func() bool { return w.pool("default", 28, "10.0.0.0/24").UID == before.UID })
		w.wait("the node knows the pool", func() bool { return !drained() })
		for range 15 { // the rest of the block
			w.mustAllocate(one)
		}
		if blocks := w.blocks(); len(blocks) != 1 {
			t.Errorf("blocks %+v", blocks)
		}
	})
}
