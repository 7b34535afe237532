package multipool_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/fault"
)

// reserver is a machine with the real allocator and a permanent reservation of one address.
type reserver struct {
	*world
	dir     string
	network *clustertest.Network
	saved   allocator.Reservation
}

func newReserver(t *testing.T) *reserver {
	w := newWorld(t, strict(t))
	pool := cluster.Pool{Name: "fixed", Prefixes: prefixes("10.0.0.0/28"), IPv4BlockBits: 32}
	if _, err := admin.NewPools(w.backend).Put(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	r := &reserver{w, t.TempDir(), clustertest.NewNetwork(w.backend, 1, 0, 0), allocator.Reservation{}}
	t.Cleanup(r.network.Close)
	return r
}

// boot starts the machine's agent after a boot.
func (r *reserver) boot(name string) (*allocator.Source, *multipool.Controller) {
	r.Helper()
	cfg := r.cfg
	cfg.Node, cfg.Dir = "one", r.dir
	a := allocator.New(nil)
	if r.saved.Token != "" {
		if err := a.RestoreReservation(r.saved); err != nil {
			r.Fatal(err)
		}
	}
	c, err := multipool.New(cfg, r.network.Backend(), nil, a, boottime.Now, r.log)
	if err == nil {
		err = multipool.StartAs(c, name, "machine")
	}
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Stop(context.Background()) })
	return allocator.NewSource(a, c), c
}

// reserve has the first agent of the machine reserve the address, and stops it.
func (r *reserver) reserve(want endpoint.Addresses) cluster.NodeID {
	r.Helper()
	source, c := r.boot("boot 1")
	var err error
	if r.saved, err = source.Reserve(r.Context(), allocator.Request{Owner: "db", Pool: "fixed", Want: want}, allocator.Permanent); err != nil {
		r.Fatal(err)
	}
	r.wait("the node has its block", func() bool { return len(c.Status().Blocks) == 1 })
	_ = c.Stop(context.Background())
	return c.Status().Node
}

var fixed = endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.5")}

// TestReservationAfterBoot: no pod takes a reservation over before the store has confirmed its block.
func TestReservationAfterBoot(t *testing.T) {
	r := newReserver(t)
	r.reserve(fixed)
	r.network.Cut()
	source, _ := r.boot("boot 2")
	req := allocator.Request{Owner: "porin.c1.eth0", Reservation: r.saved.Token}
	got, err := source.Allocate(t.Context(), req)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "pool fixed: the block of [10.0.0.5] cannot be claimed: ") {
		t.Fatalf("without the store: %+v, error %v", got, err)
	}
	if hint, _ := fault.HintOf(err); !strings.HasPrefix(hint, "find out why the store does not answer") {
		t.Errorf("the hint is %q", hint)
	}
	r.network.Heal()
	r.wait("the pod has the address", func() bool {
		got, err = source.Allocate(t.Context(), req)
		return err == nil
	})
	if got.Addresses != fixed || got.Pool != "fixed" {
		t.Errorf("with the store: %+v", got)
	}
}

// TestReservationInLostBlock has an administrator delete the node while its machine is off, and another node claim the
// block.
func TestReservationInLostBlock(t *testing.T) {
	r := newReserver(t)
	node := r.reserve(fixed)
	if err := r.nodeAdmin().Delete(t.Context(), node, true); err != nil {
		t.Fatal(err)
	}
	two := r.machine("two", 2)
	r.wait("another node has the block", func() bool { return two.controller.Refill(t.Context(), "fixed", fixed.IPv4) == nil })
	source, c := r.boot("boot 2")
	req := allocator.Request{Owner: "porin.c1.eth0", Reservation: r.saved.Token}
	for range 3 {
		if got, err := source.Allocate(t.Context(), req); err == nil {
			t.Fatalf("another node's address is given out: %+v", got)
		}
	}
	r.wait("the block is in conflict", func() bool {
		blocks := c.Status().Blocks
		return len(blocks) == 1 && blocks[0].State == "conflict"
	})
	if got, err := source.Allocate(t.Context(), req); err == nil || !strings.Contains(err.Error(), "block 10.0.0.5/32 is not ready: conflict") {
		t.Errorf("%+v, error %v, want that the block is not this node's", got, err)
	}
}
