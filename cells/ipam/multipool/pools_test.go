package multipool_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/fault"
)

func TestPoolDeleteInUse(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		pools := admin.NewPools(b)
		before, err := pools.Get(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		err = pools.Delete(t.Context(), "default")
		if !errors.Is(err, admin.ErrPoolInUse) {
			t.Errorf("error %v, want %v", err, admin.ErrPoolInUse)
		}
		for _, want := range []string{": one; ", "delete the pods", "porin ipam list", "porin ipam release"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not have %q", err, want)
			}
		}
		if after, err := pools.Get(t.Context(), "default"); err != nil || after.Version != before.Version {
			t.Errorf("the pool has changed: %+v, error %v", after, err)
		}
		w.endPods(one)
		w.wait("the pool is deleted", func() bool { return pools.Delete(t.Context(), "default") == nil })
	})
}

// TestPoolName has names that no pool can have, which are no keys of a store either.
func TestPoolName(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		pools := admin.NewPools(b)
		for _, name := range []string{"Bad_Name", "bad_name", "-bad", "a b", strings.Repeat("a", 64)} {
			_, got := pools.Get(t.Context(), name)
			_, put := pools.Put(t.Context(), cluster.Pool{Name: name, Prefixes: prefixes("10.0.0.0/24")})
			for what, err := range map[string]error{"get": got, "put": put, "delete": pools.Delete(t.Context(), name)} {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), v1.PoolNameRule) || strings.Contains(err.Error(), "store") {
					t.Errorf("%s pool %q: error %v, want the rule of names alone", what, name, err)
				}
			}
		}
	})
}

func TestPoolChangesRace(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		p := w.pool("default", 28, "10.0.0.0/24")
		pools := admin.NewPools(b)
		first, second := p, p
		first.Quarantine, second.Disabled = time.Minute, true
		if _, err := pools.Put(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := pools.Put(t.Context(), second); !errors.Is(err, admin.ErrChanged) {
			t.Errorf("a change of what was read before: error %v, want %v", err, admin.ErrChanged)
		}
		if got, err := pools.Get(t.Context(), "default"); err != nil || got.Quarantine != time.Minute || got.Disabled {
			t.Errorf("pool %+v, error %v", got, err)
		}
	})
}

// TestPoolsOverlapRace creates overlapping pools at the same time: at most one of each pair is accepted.
func TestPoolsOverlapRace(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		pools := admin.NewPools(b)
		for round := range 20 {
			prefix := netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", round))
			var creating sync.WaitGroup
			for i := range 3 {
				creating.Go(func() {
					_, err := pools.Put(t.Context(), cluster.Pool{Name: fmt.Sprintf("p%d-%d", round, i), Prefixes: []netip.Prefix{prefix}})
					if err != nil && !errors.Is(err, admin.ErrOverlap) {
						t.Errorf("put: %v", err)
					}
				})
			}
			creating.Wait()
		}
		all, err := pools.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range all {
			if p.State == cluster.PoolAccepted && len(p.Pending) > 0 {
				t.Errorf("pool %+v has pending prefixes", p)
			}
			for _, other := range all[:i] {
				overlap := func(prefix netip.Prefix) bool { return slices.ContainsFunc(other.Prefixes, prefix.Overlaps) }
				if slices.ContainsFunc(p.Prefixes, overlap) {
					t.Errorf("pools %s and %s overlap", p.Name, other.Name)
				}
			}
		}
	})
}

func TestPoolGrowsAndShrinks(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		p := w.pool("default", 28, "10.0.0.0/28", "10.0.1.0/28")
		pools := admin.NewPools(w.backend)
		one := w.machine("one", 1)
		addr := w.mustAllocate(one)
		kept := netip.MustParsePrefix("10.0.0.0/28")
		if kept.Contains(addr) {
			kept = netip.MustParsePrefix("10.0.1.0/28")
		}
		p.Prefixes = []netip.Prefix{kept, netip.MustParsePrefix("10.0.2.0/28")}
		p, err := pools.Put(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pools.Put(t.Context(), cluster.Pool{Name: "other", Prefixes: prefixes("10.0.0.0/23"), IPv4BlockBits: 24}); !errors.Is(err, admin.ErrOverlap) {
			t.Errorf("a pool with addresses of a block in use: error %v, want %v", err, admin.ErrOverlap)
		}
		w.wait("nothing more of the removed prefix is given out", func() bool {
			addr, ok := one.addresses.allocate(cluster.IPv4, func(netip.Addr) {})
			return !ok || p.Prefixes[0].Contains(addr) || p.Prefixes[1].Contains(addr)
		})
		p.IPv4BlockBits = 29
		if _, err := pools.Put(t.Context(), p); err == nil {
			t.Error("the size of blocks was changed")
		}
	})
}

// TestPoolChangeRefused changes several settings of a pool. One of them cannot change: then none does.
func TestPoolChangeRefused(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("other", 28, "10.0.1.0/24")
	before := w.pool("default", 28, "10.0.0.0/24")
	pools := admin.NewPools(w.backend)
	p := before
	p.Prefixes, p.Exclude, p.Quarantine = prefixes("10.0.0.0/24", "10.0.1.0/24"), prefixes("10.0.1.0/28"), time.Minute
	if _, err := pools.Put(t.Context(), p); !errors.Is(err, admin.ErrOverlap) {
		t.Fatalf("error %v, want %v", err, admin.ErrOverlap)
	}
	if after, err := pools.Get(t.Context(), "default"); err != nil || len(after.Exclude)+len(after.Pending) > 0 || after.Quarantine != before.Quarantine {
		t.Errorf("pool %+v, error %v", after, err)
	}
}

// TestPoolExclude excludes three blocks of four: no node claims them, and the node that owns one gives it back when it
// is empty.
func TestPoolExclude(t *testing.T) {
	w := newWorld(t, strict(t))
	p, all := w.pool("default", 28, "10.0.0.0/26"), prefixes("10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/28", "10.0.0.48/28")
	pools := admin.NewPools(w.backend)
	one := w.machine("one", 1)
	w.mustAllocate(one)
	first, last := w.blocks()[0].CIDR, all[3]
	if first == last {
		last = all[2]
	}
	p.Exclude = slices.DeleteFunc(all, func(cidr netip.Prefix) bool { return cidr == last })
	if _, err := pools.Put(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.wait("an address of the block that is left is given out", func() bool {
		addr, err := w.allocate(one, time.Second)
		return err == nil && last.Contains(addr)
	})
	if blocks := w.blocks(); len(blocks) != 2 {
		t.Errorf("what is in use of an excluded block is not this node's any more: %+v", blocks)
	}
	w.refused(w.machine("two", 2), multipool.ErrNoBlock)
	for want, addr := range map[string]netip.Addr{"is excluded": first.Addr(), "nobody gets it": p.Exclude[1].Addr()} {
		err := one.controller.Refill(t.Context(), "default", addr)
		if err == nil || !strings.Contains(err.Error(), want) || fault.KindOf(err) != fault.Invalid {
			t.Errorf("address %s is asked for: error %v, want one with %q", addr, err, want)
		}
	}
	w.endPods(one)
	w.mustAllocate(one)
	w.wait("the excluded block is given back", func() bool {
		blocks := w.blocks()
		return len(blocks) == 1 && blocks[0].CIDR == last
	})
}

// TestPoolRecreatedWithOtherBlocks has a node that has not heard of it claim: its claim is withdrawn.
func TestPoolRecreatedWithOtherBlocks(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/27")
		late := newLateWatch(w.backend.Pools)
		w.backend.Pools = late
		one := w.machine("one", 1)
		w.mustAllocate(one) // it knows the pool
		w.endPods(one)
		w.wait("its block is given back", func() bool { return len(w.blocks()) == 0 })
		late.hold()
		pools := admin.NewPools(w.backend)
		w.wait("the pool is deleted", func() bool { return pools.Delete(t.Context(), "default") == nil })
		w.wait("the pool is made anew", func() bool {
			_, err := pools.Put(t.Context(), cluster.Pool{Name: "default", Prefixes: prefixes("10.0.0.0/27"), IPv4BlockBits: 27})
			return err == nil
		})
		two := w.machine("two", 2)
		w.mustAllocate(two) // the one block
		if addr, err := w.allocate(one, 300*time.Millisecond); err == nil {
			t.Errorf("%s is given out of a block that overlaps another node's", addr)
		}
		w.wait("one block is left", func() bool { return len(w.blocks()) == 1 })
	})
}

func TestManyPools(t *testing.T) {
	const many = 150
	each(t, func(t *testing.T, b cluster.Backend) {
		pools := admin.NewPools(b)
		for i := range many {
			if _, err := pools.Put(t.Context(), cluster.Pool{Name: fmt.Sprintf("pool-%d", i), Prefixes: prefixes(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))}); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := pools.List(t.Context()); err != nil || len(all) != many {
			t.Errorf("%d pools, error %v", len(all), err)
		}
	})
}
