package allocator_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// TestConcurrentOwners: many owners come and go at once, with blocks that are reshaped and a cleanup.
func TestConcurrentOwners(t *testing.T) {
	n := multiPool(t)
	n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, IPv6: true, Quarantine: 1})
	cleanup := n.Cleanup(func() {})
	add(t, n, "10.0.0.0/29")
	add(t, n, "fd00::/124")
	var (
		mu    sync.Mutex // guards taken
		taken = map[netip.Addr]allocator.Handle{}
		all   sync.WaitGroup
	)
	take := func(owner allocator.Handle, addresses endpoint.Addresses, has bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, addr := range addresses.List() {
			if other := taken[addr]; has && other != "" {
				t.Errorf("%s is given to %s and to %s", addr, other, owner)
			}
			taken[addr] = map[bool]allocator.Handle{true: owner}[has]
		}
	}
	for worker := range 8 {
		all.Go(func() {
			owner := allocator.Handle(fmt.Sprintf("porin.c%d.eth0", worker))
			for range 500 {
				got, err := n.Allocate(allocator.Request{Owner: owner})
				if err != nil {
					continue // none is free, or none is cleaned up
				}
				take(owner, got.Addresses, true)
				take(owner, got.Addresses, false)
				n.ReleaseListed(got)
			}
		})
	}
	for range 500 {
		cleanup.Done(cleanup.Pending())
		_ = n.Pools().Remove(allocator.DefaultPool, netip.MustParsePrefix("10.0.0.4/30"))
		_ = n.Pools().Remove(allocator.DefaultPool, netip.MustParsePrefix("fd00::/125"))
		add(t, n, "10.0.0.0/29")
		add(t, n, "fd00::/124")
	}
	all.Wait()
	wantConsistent(t, n)
	for _, b := range n.Pools().Blocks(allocator.DefaultPool) {
		if b.Used != 0 {
			t.Errorf("left: %+v", b)
		}
	}
}
