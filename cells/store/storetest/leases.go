package storetest

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

func testLeaseIsKept(t *testing.T, b Backend) {
	s := b.Open(t)
	l := lease(t, s)
	first := create(t, s, "node/1", "up", l)
	time.Sleep(4500 * time.Millisecond) // the claim is about time: more than two of the lease's
	swap(t, s, "node/1", first, "still up")
	select {
	case <-l.Lost():
		t.Error("it is lost")
	default:
	}
}

func testLeaseIsReleased(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	_, before := list(t, s, "")
	r := watch(t, s, "", before)
	l, other := lease(t, s), lease(t, s)
	for i := range 3 {
		create(t, s, fmt.Sprintf("node/%d", i), "", l)
	}
	create(t, s, "other", "", other)
	create(t, s, "free", "", nil)
	wants(t, "release", l.Release(ctx), nil)
	wants(t, "release again", l.Release(ctx), nil)
	entries, _ := list(t, s, "")
	want := map[string]string{"free": "", "other": ""}
	same(t, "left", want, valuesOf(entries))
	for r.changes < 6 {
		r.next()
	}
	again := watch(t, s, "", r.upto) // in the middle of the end
	again.known = maps.Clone(r.known)
	r.until(want)
	again.until(want)
	same(t, "changes that were told", 8, r.changes)
	_, err := s.Create(ctx, "node/4", nil, l)
	wants(t, "create under a lease that was released", err, store.ErrLeaseLost)
	select {
	case <-l.Lost():
		t.Error("what is released is not lost")
	default:
	}
}

func testLeaseIsLost(t *testing.T, b Backend) {
	s := b.Open(t)
	l := lease(t, s)
	create(t, s, "node/1", "", l)
	create(t, s, "free", "", nil)
	b.EndLeases(t)
	closes(t, "the lease is lost", l.Lost())
	gone(t, s, "node/1")
	_, err := s.Create(t.Context(), "node/1", nil, l)
	wants(t, "create under it", err, store.ErrLeaseLost)
	wants(t, "release", l.Release(t.Context()), nil)
	create(t, s, "node/1", "", lease(t, s))
	if entries, _ := list(t, s, ""); len(entries) != 2 {
		t.Errorf("%d entries", len(entries))
	}
}

func testLeaseOfAnother(t *testing.T, b Backend) {
	s := b.Open(t)
	_, err := s.Create(t.Context(), "a", nil, lease(t, New(t)))
	wants(t, "create under another store's lease", err, store.ErrLeaseLost)
	for _, ttl := range []time.Duration{-1, 0, time.Millisecond, 48 * time.Hour} {
		_, err := s.Lease(t.Context(), ttl)
		wants(t, fmt.Sprintf("lease of %v", ttl), err, store.ErrInvalid)
	}
}

func testLeaseOutlivesARestart(t *testing.T, b Backend) {
	s := b.Open(t)
	l, err := s.Lease(t.Context(), 3*time.Second)
	wants(t, "lease", err, nil)
	create(t, s, "node/1", "", l)
	revision := create(t, s, "node/2", "", l)
	stop(t, s)
	s = b.Open(t)
	if _, err := s.Get(t.Context(), "node/1"); err != nil {
		t.Errorf("right after the restart: %v", err)
	}
	next := lease(t, s)
	if _, err := next.CompareAndSwap(t.Context(), "node/2", revision, []byte("mine")); err != nil {
		t.Errorf("taken over: %v", err)
	}
	gone(t, s, "node/1")
	if got, err := s.Get(t.Context(), "node/2"); err != nil || string(got.Value) != "mine" {
		t.Errorf("what was taken over is %q, %v", got.Value, err)
	}
	select {
	case <-l.Lost():
		t.Error("a store that stops loses no lease")
	default:
	}
}

// testLeaseChanges is about which lease an entry is under after a change.
func testLeaseChanges(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	l, other := lease(t, s), lease(t, s)
	swap(t, s, "stays", create(t, s, "stays", "", l), "under l")
	swap(t, s, "begins-anew", create(t, s, "begins-anew", "", l), "under l")
	_, err := other.CompareAndSwap(ctx, "goes-over", create(t, s, "goes-over", "", l), []byte("under other"))
	wants(t, "swap under another lease", err, nil)
	_, err = l.CompareAndSwap(ctx, "comes", create(t, s, "comes", "", nil), []byte("under l"))
	wants(t, "swap under a lease", err, nil)
	_, err = l.CompareAndSwap(ctx, "comes", 1, nil)
	wants(t, "swap of an old revision", err, store.ErrConflict)
	remove(t, s, "begins-anew")
	create(t, s, "begins-anew", "under none", nil)
	wants(t, "release", l.Release(ctx), nil)
	entries, _ := list(t, s, "")
	same(t, "left", map[string]string{"goes-over": "under other", "begins-anew": "under none"}, valuesOf(entries))
}
