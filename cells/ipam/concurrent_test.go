package ipam_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
)

// TestNoAddressIsGivenTwiceWhileOthersAreAsked has many owners come and go at once, with blocks that are reshaped, and somebody
// who names addresses now and then: the allocator asks without its lock.
func TestNoAddressIsGivenTwiceWhileOthersAreAsked(t *testing.T) {
	n := node(t, ipam.Config{Mode: ipam.ModeMultiPool}, fickle{})
	n.MultiPool.Configure(ipam.DefaultPool, ipam.Settings{IPv4: true, IPv6: true, Quarantine: 1})
	n.MultiPool.Until(forever)
	add(t, n, "10.0.0.0/29")
	add(t, n, "fd00::/124")
	var (
		mu    sync.Mutex // guards taken
		taken = map[netip.Addr]ipam.Handle{}
		all   sync.WaitGroup
	)
	take := func(owner ipam.Handle, addresses endpointmanager.Addresses, has bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, addr := range addresses.List() {
			if other := taken[addr]; has && other != "" {
				t.Errorf("%s is given to %s and to %s", addr, other, owner)
			}
			taken[addr] = map[bool]ipam.Handle{true: owner}[has]
		}
	}
	for worker := range 8 {
		all.Go(func() {
			owner := ipam.Handle(fmt.Sprintf("porin.c%d.eth0", worker))
			for range 500 {
				got, err := n.Allocator.Allocate(context.Background(), ipam.Request{Owner: owner})
				if err != nil {
					continue // none is free, or all are named
				}
				take(owner, got.Addresses, true)
				take(owner, got.Addresses, false)
				n.Allocator.ReleaseListed(got)
			}
		})
	}
	for range 500 {
		n.Asker.Ask(t.Context())
		_ = n.MultiPool.Remove(ipam.DefaultPool, netip.MustParsePrefix("10.0.0.4/30"))
		_ = n.MultiPool.Remove(ipam.DefaultPool, netip.MustParsePrefix("fd00::/125"))
		add(t, n, "10.0.0.0/29")
		add(t, n, "fd00::/124")
	}
	all.Wait()
	for _, b := range n.MultiPool.Blocks(ipam.DefaultPool) {
		if b.Used != 0 {
			t.Errorf("left: %+v", b)
		}
	}
}

// fickle names one address in four.
type fickle struct{}

func (fickle) Named(_ context.Context, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(netip.Addr) bool { return rand.IntN(4) > 0 })
}
