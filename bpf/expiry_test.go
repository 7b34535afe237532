package bpf_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// TestExpiryWithoutSweep: the timer goes on when no sweep puts it off, removes what is over, and nothing else.
func TestExpiryWithoutSweep(t *testing.T) {
	f := load(t)
	f.reset(t)
	f.limit(t, abi.Limits{Common: 256})
	open := func(port uint16) (here, there abi.ConnectionKey) {
		t.Helper()
		l := newLife(f, false, false)
		l.alice = netip.AddrPortFrom(l.alice.Addr(), port)
		l.send(t, packet{from: "alice", flags: syn})
		return l.keys()
	}
	seen, other := open(1) // by a sweep
	f.sweepOnce(t, time.Millisecond)
	left := map[abi.ConnectionKey]bool{other: true}
	var over []abi.ConnectionKey
	for port := uint16(2); port < 100; port++ {
		here, there := open(port)
		left[here] = true
		over = append(over, there)
	}
	for _, key := range append(over, seen) {
		f.expire(t, key)
	}
	testutil.Eventually(t, func() error {
		if n := len(f.connections(t)); n != len(left) {
			return fmt.Errorf("%d connections, want %d", n, len(left))
		}
		return nil
	})
	for key := range f.connections(t) {
		if !left[key] {
			t.Errorf("connection %+v is left", key)
		}
	}
	f.checkUsage(t)
	f.raise(t, f.alice) // and all others end with her
	testutil.Eventually(t, func() error {
		if n := len(f.connections(t)); n != 0 {
			return fmt.Errorf("%d connections, want none", n)
		}
		return nil
	})
	f.checkUsage(t)
}
