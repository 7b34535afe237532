package bpf_test

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"porin.dev/porin/bpf/abi"
)

// falsify changes what is counted of the endpoints, and the sum.
func (f *fixture) falsify(t *testing.T, by int32, ids ...uint32) {
	t.Helper()
	for _, id := range ids {
		var usage abi.Usage
		if err := f.objects.Usage.Lookup(id, &usage); err != nil {
			t.Fatal(err)
		}
		if usage.Inserted += uint32(by); by < 0 {
			usage.Inserted, usage.Removed = usage.Inserted+uint32(-by), usage.Removed+uint32(-by)
		}
		if err := f.objects.Usage.Put(id, usage); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepCorrectsCount: a wrong count is right after the second sweep, and not before.
func TestSweepCorrectsCount(t *testing.T) {
	f := load(t)
	for _, row := range []struct {
		name string
		by   int32
		ids  []uint32
	}{
		{"too many, at an endpoint and in the sum", 5, []uint32{abi.NoEndpoint, uint32(alice.id)}},
		{"too few, at an endpoint and in the sum", -5, []uint32{abi.NoEndpoint, uint32(alice.id)}},
		{"too many, at an endpoint that has no connections", 3, []uint32{uint32(bob.id)}},
		{"too few, in the sum", -3, []uint32{abi.NoEndpoint}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f.reset(t)
			f.sweep(t)
			l := newConversation(f, false, false)
			l.send(t, packet{"alice", syn, deliver})
			f.falsify(t, row.by, row.ids...)
			for sweep, want := range []uint32{0, uint32(len(row.ids)), 0, 0} {
				if got := f.sweep(t).Corrected; got != want {
					t.Errorf("sweep %d: %d counts corrected, want %d", sweep, got, want)
				}
			}
			f.checkUsage(t)
		})
	}
}

// TestSweepDoesNotTrustOneDifference: a difference that the next sweep does not find again is not corrected.
func TestSweepDoesNotTrustOneDifference(t *testing.T) {
	f := load(t)
	f.reset(t)
	for _, by := range []int32{5, -5, 5, -10, 5} {
		f.falsify(t, by, uint32(alice.id))
		if got := f.sweep(t).Corrected; got != 0 {
			t.Errorf("%d counts corrected, want none", got)
		}
	}
	f.checkUsage(t)
}

// churn opens and closes connections from alice to bob until it is stopped; with the same ports again, so that the next
// one removes the entries of the last.
func (f *fixture) churn(t *testing.T) (opened *atomic.Int64, stop func()) {
	t.Helper()
	opened = &atomic.Int64{}
	var stopped atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		l := newConversation(f, false, false)
		for !stopped.Load() {
			for port := uint16(1024); port < 1024+64; port++ {
				l.alice = netip.AddrPortFrom(l.alice.Addr(), port)
				for _, p := range []packet{{from: "alice", flags: syn}, {from: "bob", flags: rst}} {
					l.send(t, p)
				}
				opened.Add(1)
			}
		}
	}()
	return opened, sync.OnceFunc(func() {
		stopped.Store(true)
		<-done
	})
}

// TestSweepUnderTraffic: while connections come and go, sweeps correct what was falsified, in both directions, and
// nothing else.
func TestSweepUnderTraffic(t *testing.T) {
	const size = 1 << 16 // a sweep takes its time, as on a node: its findings are counted before it ends
	f := loadSized(t, size)
	f.reset(t)
	f.limit(t, abi.Limits{Common: size})
	opened, stop := f.churn(t)
	defer stop()
	sweep := func(times int) (corrected uint32) {
		for ; times > 0; times-- {
			corrected += f.sweep(t).Corrected
			for until := opened.Load() + 2; opened.Load() < until && !t.Failed(); {
				runtime.Gosched()
			}
		}
		return corrected
	}
	if n := sweep(20); n != 0 {
		t.Errorf("%d counts corrected, and none was wrong", n)
	}
	for _, by := range []int32{10000, -10000} {
		f.falsify(t, by, abi.NoEndpoint, uint32(alice.id))
		if n := sweep(3); n < 2 {
			t.Errorf("falsified by %d: %d counts corrected, want that of alice and the sum", by, n)
		}
	}
	stop()
	for range 2 {
		f.sweep(t)
	}
	f.checkUsage(t)
}
