package main

import (
	"context"
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/ipam/allocator"
)

// refiller is an allocator.Refiller that has one block.
type refiller struct{ pools allocator.Pools }

func (r refiller) Refill(_ context.Context, pool string, _ ...netip.Addr) error {
	fmt.Println("refill", pool)
	return r.pools.Add(pool, netip.MustParsePrefix("10.64.0.0/28"))
}

func Example_ipam() {
	a := allocator.New(nil) // reservations are kept in memory
	a.Pools().Configure("blue", allocator.Settings{IPv4: true})
	source := allocator.NewSource(a, refiller{a.Pools()})

	for _, owner := range []allocator.Handle{"pod-a", "pod-b", "pod-a"} {
		got, err := source.Allocate(context.Background(), allocator.Request{Owner: owner, Pool: "blue"})
		fmt.Println(got.Owner, got.Addresses.List(), err)
	}
	fmt.Println("released:", a.Release("pod-a"))
	// Output:
	// refill blue
	// pod-a [10.64.0.0] <nil>
	// pod-b [10.64.0.1] <nil>
	// pod-a [10.64.0.0] <nil>
	// released: true
}
