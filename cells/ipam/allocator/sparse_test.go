package allocator_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// TestSparseBlock allocates and releases many addresses of a /64, with few in use at a time.
func TestSparseBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := multiPool(t)
		n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv6: true, Quarantine: 30 * time.Second})
		add(t, n, "fd00::/64")
		seen := map[netip.Addr]bool{}
		for i := range 20_000 {
			owner := allocator.Handle(fmt.Sprint(i))
			got, err := n.Allocate(allocator.Request{Owner: owner})
			if addr := got.Addresses.IPv6; err != nil || seen[addr] {
				t.Fatalf("address %d: %s, %v; given out before: %v", i, addr, err, seen[addr])
			}
			seen[got.Addresses.IPv6] = true
			n.Release(owner)
			time.Sleep(time.Second)
		}
		if known := allocator.Known(n); known > 40 {
			t.Errorf("%d addresses are remembered, want those of 30 s", known)
		}
		wantConsistent(t, n)
		last := endpoint.Addresses{IPv6: netip.MustParseAddr("fd00::ffff:ffff:ffff:ffff")}
		if _, err := n.Allocate(allocator.Request{Owner: "last", Want: last}); err != nil {
			t.Error(err)
		}
		for i := range 1000 { // refused owners are not remembered
			want := endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.1"), IPv6: netip.MustParseAddr(fmt.Sprintf("fd00::1:%x", i))}
			_, err := n.Allocate(allocator.Request{Owner: "refused", Want: want})
			wantFault(t, "a family that the pool has not", err, allocator.ErrOutside)
		}
		time.Sleep(time.Minute)
		if _ = n.List(); allocator.Known(n) != 1 {
			t.Errorf("%d addresses are remembered, want one", allocator.Known(n))
		}
	})
}

// TestSparseBlockReusesNothing though each address has rested when the next is asked for.
func TestSparseBlockReusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := multiPool(t)
		n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv6: true, Quarantine: 30 * time.Second})
		add(t, n, "fd00::/64")
		for i := range 100 {
			got, err := n.Allocate(allocator.Request{Owner: "a"})
			if want := netip.MustParseAddr(fmt.Sprintf("fd00::%x", i)); err != nil || got.Addresses.IPv6 != want {
				t.Fatalf("got %v, %v, want %s", got.Addresses, err, want)
			}
			n.Release("a")
			time.Sleep(time.Minute)
		}
	})
}

func TestPoolWithoutFamily(t *testing.T) {
	n := multiPool(t)
	n.Pools().Configure(allocator.DefaultPool, allocator.Settings{})
	_, err := n.Allocate(allocator.Request{Owner: "a"})
	wantFault(t, "no address at all", err, allocator.ErrExhausted)
	wantConsistent(t, n)
}

func TestAddLargestBlocks(t *testing.T) {
	n := multiPool(t)
	for block, ok := range map[string]bool{
		"fd00::/64": true, "fd01::/63": false, "10.0.0.0/16": true, "11.0.0.0/15": false, "fd02::1/64": false, "fd03::/128": true,
	} {
		if err := n.Pools().Add(allocator.DefaultPool, netip.MustParsePrefix(block)); (err == nil) != ok {
			t.Errorf("add %s: %v", block, err)
		}
	}
}
