package bpf_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

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
		l := newConversation(f, false, false)
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
	over = append(over, seen)
	for _, key := range over {
		f.expire(t, key)
	}
	f.wantGone(t, over)
	if got := f.connections(t); !maps.EqualFunc(got, left, func(abi.Connection, bool) bool { return true }) {
		t.Errorf("%d connections are left, want the %d that are not over", len(got), len(left))
	}
	f.checkUsage(t)
	f.replacePod(t, f.alice) // and all others end with her
	f.wantGone(t, slices.Collect(maps.Keys(left)))
	f.checkUsage(t)
}

// wantGone waits for connections to be removed.
func (f *fixture) wantGone(t *testing.T, keys []abi.ConnectionKey) {
	t.Helper()
	testutil.Eventually(t, func() error {
		for _, key := range keys {
			var c abi.Connection
			if err := f.objects.Connections.Lookup(key, &c); !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("%+v is there, error %v", key, err)
			}
		}
		return nil
	})
}
