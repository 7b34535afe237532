package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

const (
	blockAddresses = 1 << 16 // of the largest block there is
	rounds         = 500     // the fastest tenth of them counts: other work on the machine slows whole rounds down
	perRound       = 2000
)

// measureIPAM allocates and releases one address of an own block that is nearly empty or nearly full.
func measureIPAM() (figures, error) {
	f := figures{}
	for percent, inUse := range map[int]int{1: blockAddresses / 100, 99: blockAddresses / 100 * 99} {
		n, err := ownBlock(inUse)
		if err != nil {
			return nil, err
		}
		source := allocator.NewSource(n, nil)
		comeAndGo := func() {
			if _, e := source.Allocate(context.Background(), allocator.Request{Owner: "porin.next.eth0"}); e != nil {
				err = e
			}
			n.Release("porin.next.eth0")
		}
		f[fmt.Sprintf("ns-%d", percent)] = nanoseconds(comeAndGo)
		f[fmt.Sprintf("allocs-%d", percent)] = testing.AllocsPerRun(perRound, comeAndGo)
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// nanoseconds is what one call takes.
func nanoseconds(call func()) float64 {
	var took []time.Duration
	for range rounds {
		began := time.Now()
		for range perRound {
			call()
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return float64(took[rounds/10].Nanoseconds()) / perRound
}

// ownBlock is a node of the cluster's pools with one block. That many of its addresses are in use, and all have been.
func ownBlock(inUse int) (*allocator.Allocator, error) {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	n, err := ipam.New(cfg, nil)
	if err != nil {
		return n, err
	}
	n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true})
	if err := n.Pools().Add(allocator.DefaultPool, netip.MustParsePrefix("10.0.0.0/16")); err != nil {
		return n, err
	}
	source := allocator.NewSource(n, nil)
	for i := range blockAddresses {
		if _, err := source.Allocate(context.Background(), allocator.Request{Owner: handle(i)}); err != nil {
			return n, err
		}
	}
	for i := inUse; i < blockAddresses; i++ {
		n.Release(handle(i))
	}
	return n, nil
}

func handle(i int) allocator.Handle { return allocator.Handle(fmt.Sprintf("porin.c%d.eth0", i)) }
