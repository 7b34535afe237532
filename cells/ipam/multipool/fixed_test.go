package multipool_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/boottime"
)

// TestFixedAddress has a pool of single addresses without a quarantine, on the real allocator. A permanent reservation
// keeps its block from one pod to the next, and no pod releases it; the block of a pod without one is given back.
func TestFixedAddress(t *testing.T) {
	w := newWorld(t, strict(t))
	pool := cluster.Pool{Name: "fixed", Prefixes: prefixes("10.0.0.0/28", "fd00::/124"), IPv4BlockBits: 32, IPv6BlockBits: 128}
	if _, err := admin.NewPools(w.backend).Put(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	cfg := w.cfg
	cfg.Node, cfg.Dir = "one", t.TempDir()
	a := allocator.New(nil)
	c, err := multipool.New(cfg, w.backend, nil, a, boottime.Now, w.log)
	source := allocator.NewSource(a, c)
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	want := endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.5"), IPv6: netip.MustParseAddr("fd00::7")}
	reserved, err := source.Reserve(t.Context(), allocator.Request{Owner: "db", Pool: "fixed", Want: want}, allocator.Permanent)
	if err != nil || reserved.Addresses != want {
		t.Fatalf("reserved %+v, error %v", reserved, err)
	}
	w.wait("the node is connected", func() bool { return c.Status().Connected })
	for _, pod := range []allocator.Handle{"c1:eth0", "c2:eth0"} {
		got, err := source.Allocate(t.Context(), allocator.Request{Owner: pod, Reservation: reserved.Token})
		if err != nil || got.Addresses != want || got.Owner != "db" {
			t.Fatalf("%s: %+v, error %v", pod, got, err)
		}
		other, err := source.Allocate(t.Context(), allocator.Request{Owner: "other:eth0", Pool: "fixed"})
		if err != nil || other.Addresses.IPv4 == want.IPv4 || other.Addresses.IPv6 == want.IPv6 {
			t.Fatalf("a pod without a reservation: %+v, error %v", other, err)
		}
		if a.Release(pod) {
			t.Errorf("%s released what is reserved", pod)
		}
		a.Release("other:eth0")
		w.wait("only the blocks of the reservation are left", func() bool { return len(w.blocks()) == 2 })
	}
	for _, b := range w.blocks() {
		if cidr := b.CIDR; cidr.Addr() != want.IPv4 && cidr.Addr() != want.IPv6 || !cidr.IsSingleIP() {
			t.Errorf("block %s", cidr)
		}
	}
	if !slices.ContainsFunc(a.List(), func(one allocator.Allocation) bool { return one.Owner == "db" && one.Reserved && one.Addresses == want }) {
		t.Errorf("nobody has the addresses reserved: %+v", a.List())
	}
}
