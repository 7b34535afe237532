package allocator_test

import (
	"fmt"
	"testing"

	"porin.dev/porin/cells/ipam/allocator"
)

// filled returns an allocator of a /16 whose first addresses are in use, and all have been.
func filled(tb testing.TB, inUse int) *allocator.Allocator {
	tb.Helper()
	a := podCIDR(tb, "10.0.0.0/16")
	a.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true})
	const all = 1<<16 - 3
	for i := range all {
		if _, err := a.Allocate(allocator.Request{Owner: numbered(i)}); err != nil {
			tb.Fatal(err)
		}
	}
	for i := inUse; i < all; i++ {
		a.Release(numbered(i))
	}
	return a
}

func numbered(i int) allocator.Handle { return allocator.Handle(fmt.Sprintf("porin.c%d.eth0", i)) }

// BenchmarkAllocateRelease is one address of an own block, given out and taken back: at any fill, and also for one of
// two containers of a pod whose pod handle has an address.
func BenchmarkAllocateRelease(b *testing.B) {
	for _, inUse := range []int{0, 110, 60000} {
		b.Run(fmt.Sprintf("used=%d", inUse), func(b *testing.B) {
			comeAndGo(b, filled(b, inUse), allocator.Request{Owner: "porin.next.eth0"})
		})
	}
	b.Run("IPv6 /64", func(b *testing.B) {
		a := multiPool(b)
		a.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv6: true})
		add(b, a, "fd00::/64")
		comeAndGo(b, a, allocator.Request{Owner: "porin.next.eth0"})
	})
	b.Run("used=60000,pod", func(b *testing.B) {
		a, pod := filled(b, 60000), allocator.Handle("default.web")
		for _, req := range []allocator.Request{{Owner: pod}, {Owner: "porin.other.eth0", PodHandle: pod}} {
			if _, err := a.Allocate(req); err != nil {
				b.Fatal(err)
			}
		}
		comeAndGo(b, a, allocator.Request{Owner: "porin.next.eth0", PodHandle: pod})
	})
}

func comeAndGo(b *testing.B, a *allocator.Allocator, req allocator.Request) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Allocate(req); err != nil {
			b.Fatal(err)
		}
		a.Release(req.Owner)
	}
}

func TestAllocateMakesNoGarbage(t *testing.T) {
	a := filled(t, 110)
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := a.Allocate(allocator.Request{Owner: "porin.next.eth0"}); err != nil {
			t.Fatal(err)
		}
		a.Release("porin.next.eth0")
	})
	if allocs != 0 {
		t.Errorf("%v allocations on the heap, want none", allocs)
	}
}
