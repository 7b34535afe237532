package storetest

import (
	"context"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

func testCallsEndWhileAway(t *testing.T, b Backend) {
	s := b.Open(t)
	create(t, s, "kept", "1", nil)
	b.Interrupt(t, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		for name, err := range calls(ctx, s) {
			wants(t, name, err, store.ErrUnavailable)
			if fault.KindOf(err) != fault.Unavailable {
				t.Errorf("%s: kind %s", name, fault.KindOf(err))
			}
		}
		began = tookAtMost(t, "a call with a deadline", began, time.Second)
		_, err := s.Get(context.Background(), "kept")
		wants(t, "get", err, store.ErrUnavailable)
		tookAtMost(t, "a call without one", began, 6*time.Second)
		_, err = s.Watch(t.Context(), "", 0)
		wants(t, "watch", err, nil)
	})
	began := time.Now()
	if got, err := s.Get(t.Context(), "kept"); err != nil || string(got.Value) != "1" {
		t.Errorf("when it is back: %q, %v", got.Value, err)
	}
	tookAtMost(t, "the first call when it is back", began, 5*time.Second)
}

func tookAtMost(t testing.TB, what string, began time.Time, most time.Duration) time.Time {
	t.Helper()
	if took := time.Since(began); took > most {
		t.Errorf("%s took %v", what, took)
	}
	return time.Now()
}

func testWatchAcrossInterruption(t *testing.T, b Backend) {
	s := b.Open(t)
	_, before := list(t, s, "")
	r := watch(t, s, "n/", before)
	want := map[string]string{"n/a": "1"}
	create(t, s, "n/a", "1", nil)
	r.until(want)
	for range 3 {
		b.Interrupt(t, func() {})
		want["n/b"], want["n/c"] = "1", "1"
		create(t, s, "n/b", "1", nil)
		create(t, s, "n/c", "1", nil)
		r.until(want)
		delete(want, "n/b")
		delete(want, "n/c")
		remove(t, s, "n/b")
		remove(t, s, "n/c")
		r.until(want)
	}
	if r.changes != 1+3*4 || r.resyncs != 0 {
		t.Errorf("%d changes and %d resyncs were told", r.changes, r.resyncs)
	}
}

// testWatchAcrossBoth has a past that goes while the store is away for one who is open.
func testWatchAcrossBoth(t *testing.T, b Backend) {
	s := b.Open(t)
	create(t, s, "n/a", "1", nil)
	r := watch(t, s, "n/", 0)
	r.until(map[string]string{"n/a": "1"})
	b.Interrupt(t, func() {})
	create(t, s, "n/b", "1", nil)
	remove(t, s, "n/a")
	b.Compact(t, s)
	create(t, s, "n/c", "1", nil)
	r.until(map[string]string{"n/b": "1", "n/c": "1"})
}

func testLeaseIsOverByTheClock(t *testing.T, b Backend) {
	s := b.Open(t)
	l := lease(t, s)
	create(t, s, "node/1", "", l)
	b.Interrupt(t, func() {
		began := time.Now()
		closes(t, "the lease is lost", l.Lost())
		tookAtMost(t, "the loss", began, 3*time.Second)
	})
	gone(t, s, "node/1")
	create(t, s, "node/1", "", lease(t, s))
}
