package storetest

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

func testCallsEndWhileAway(t *testing.T, b Backend) {
	s := b.Open(t)
	create(t, s, "kept", "1")
	b.Interrupt(t, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		for name, err := range calls(ctx, s) {
			wantError(t, name, err, store.ErrUnavailable)
			if fault.KindOf(err) != fault.Unavailable {
				t.Errorf("%s: kind %s", name, fault.KindOf(err))
			}
		}
		began = tookAtMost(t, "a call with a deadline", began, time.Second)
		_, err := s.Get(context.Background(), "kept")
		wantError(t, "get", err, store.ErrUnavailable)
		tookAtMost(t, "a call without one", began, 6*time.Second)
		_, err = s.Watch(t.Context(), "")
		wantError(t, "watch", err, nil)
	})
	began := time.Now()
	for time.Since(began) < 5*time.Second { // a client dials again within 3.6 s, and a call of this test may end before
		if _, err := s.Get(t.Context(), "kept"); err == nil {
			break
		}
	}
	wantValue(t, s, "kept", "1")
	tookAtMost(t, "the first answer when it is back", began, 5*time.Second)
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
	r := watch(t, s, "n/")
	want := map[string]string{"n/a": "1"}
	create(t, s, "n/a", "1")
	r.until(want)
	for range 3 {
		b.Interrupt(t, func() {})
		want["n/b"], want["n/c"] = "1", "1"
		create(t, s, "n/b", "1")
		create(t, s, "n/c", "1")
		r.until(want)
		delete(want, "n/b")
		delete(want, "n/c")
		remove(t, s, "n/b", "1")
		remove(t, s, "n/c", "1")
		r.until(want)
	}
	if r.changes != 1+3*4 || r.resyncs != 0 {
		t.Errorf("%d changes and %d resyncs were told", r.changes, r.resyncs)
	}
}

// testWatchAcrossCompaction compacts the store for a watch that has read all, and while the store is away for a watch.
func testWatchAcrossCompaction(t *testing.T, b Backend) {
	s := b.Open(t)
	r := watch(t, s, "n/")
	create(t, s, "n/a", "1")
	r.until(map[string]string{"n/a": "1"})
	b.Compact(t)
	create(t, s, "n/b", "1")
	r.until(map[string]string{"n/a": "1", "n/b": "1"})
	same(t, "resyncs of a watch that has read all", 0, r.resyncs)
	b.Interrupt(t, func() {})
	create(t, s, "n/c", "1")
	remove(t, s, "n/a", "1")
	b.Compact(t)
	create(t, s, "n/d", "1")
	r.until(map[string]string{"n/b": "1", "n/c": "1", "n/d": "1"})
}

// testListAcrossCompaction compacts the store while a reader has one page of a list: the rest is of another moment, so the list begins anew.
func testListAcrossCompaction(t *testing.T, b Backend) {
	s := b.Open(t)
	for i := range 1100 {
		create(t, s, fmt.Sprintf("n/m%04d", i), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := s.Watch(ctx, "n/")
	if err != nil {
		t.Fatal(err)
	}
	first := <-events
	if first.Continues || !first.More || len(first.Entries) > 500 {
		t.Errorf("a list of 1,100 begins with %d, continues %t, more %t", len(first.Entries), first.Continues, first.More)
	}
	create(t, s, "n/a", "")
	b.Compact(t)
	known := valuesOf(first.Entries)
	listed(events, known)
	if want := valuesOf(List(t, s, "n/")); !maps.Equal(known, want) {
		t.Errorf("the list has %d entries, want %d", len(known), len(want))
	}
}
