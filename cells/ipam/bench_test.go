package ipam

import (
	"context"
	"fmt"
	"testing"
)

// filled returns an allocator of a /16 of which the first addresses are in use, and all have been.
func filled(tb testing.TB, inUse int) Allocator {
	tb.Helper()
	cfg := DefaultConfig()
	cfg.PodCIDRs, cfg.Quarantine = []string{"10.0.0.0/16"}, 0
	a, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	const all = maxBlock - 3
	for i := range all {
		if _, err := a.Allocate(context.Background(), Request{Owner: Handle(fmt.Sprintf("porin.c%d.eth0", i))}); err != nil {
			tb.Fatal(err)
		}
	}
	for i := inUse; i < all; i++ {
		a.Release(Handle(fmt.Sprintf("porin.c%d.eth0", i)))
	}
	return a
}

// BenchmarkAllocateRelease is one address of an own block, given out and taken back: at any fill, and also for one of two
// containers of a pod whose legacy handle has an address.
func BenchmarkAllocateRelease(b *testing.B) {
	for _, inUse := range []int{0, 110, 60000} {
		b.Run(fmt.Sprintf("used=%d", inUse), func(b *testing.B) {
			comeAndGo(b, filled(b, inUse), Request{Owner: "porin.next.eth0"})
		})
	}
	b.Run("used=60000,legacy", func(b *testing.B) {
		a, legacy := filled(b, 60000), Handle("default.web")
		for _, req := range []Request{{Owner: legacy}, {Owner: "porin.other.eth0", Legacy: legacy}} {
			if _, err := a.Allocate(context.Background(), req); err != nil {
				b.Fatal(err)
			}
		}
		comeAndGo(b, a, Request{Owner: "porin.next.eth0", Legacy: legacy})
	})
}

func comeAndGo(b *testing.B, a Allocator, req Request) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Allocate(ctx, req); err != nil {
			b.Fatal(err)
		}
		a.Release(req.Owner)
	}
}

func TestAllocateAndReleaseMakeNoGarbage(t *testing.T) {
	a, ctx := filled(t, 110), context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := a.Allocate(ctx, Request{Owner: "porin.next.eth0"}); err != nil {
			t.Fatal(err)
		}
		a.Release("porin.next.eth0")
	})
	if allocs != 0 {
		t.Errorf("%v allocations on the heap, want none", allocs)
	}
}
