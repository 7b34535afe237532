package nodeaddr

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSource has one interface. Each watch takes its answer from watches.
type fakeSource struct {
	addresses map[netip.Addr]string
	watches   []watch
}

type watch struct {
	changes chan netip.Addr
	err     error
}

func (s *fakeSource) List() (map[netip.Addr]string, error) { return s.addresses, nil }

func (s *fakeSource) Watch(context.Context) (<-chan netip.Addr, error) {
	next := s.watches[0]
	s.watches = s.watches[1:]
	return next.changes, next.err
}

// TestFollower: update is called at the start, and for relevant changes; and again when the kernel drops notifications,
// as soon as a new watch begins.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relevant, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
		first, second := watch{changes: make(chan netip.Addr)}, watch{changes: make(chan netip.Addr)}
		source := &fakeSource{
			addresses: map[netip.Addr]string{relevant: "eth0"},
			watches:   []watch{first, {err: errors.New("no socket")}, second},
		}
		var updates atomic.Int32
		f := NewFollower("test", source, func(a netip.Addr) bool { return a == relevant }, func(all map[netip.Addr]string) {
			if all[relevant] != "eth0" {
				t.Errorf("updated with %v, want all addresses of the source", all)
			}
			updates.Add(1)
		}, slog.New(slog.DiscardHandler))
		expect := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := updates.Load(); got != want {
				t.Errorf("%s: %d updates, want %d", when, got, want)
			}
		}
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
		expect("at the start", 1)
		first.changes <- other
		expect("after a change that is not relevant", 1)
		first.changes <- relevant
		expect("after a relevant change", 2)
		close(first.changes)
		time.Sleep(pause)
		expect("while no watch can begin", 2)
		time.Sleep(pause)
		expect("when the next watch begins", 3)
		second.changes <- relevant
		expect("after a change that the next watch tells", 4)
		if err := f.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
