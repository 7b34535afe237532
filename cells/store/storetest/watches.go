package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

func testWatch(t *testing.T, b Backend) {
	s := b.Open(t)
	_, before := list(t, s, "")
	a := create(t, s, "n/a", "1", nil)
	other := create(t, s, "other", "1", nil)
	a2 := swap(t, s, "n/a", a, "2")
	r := watch(t, s, "n/", before)
	want := []store.Event{
		{Type: store.Put, Entry: store.Entry{Key: "n/a", Value: []byte("1"), Revision: a}, Revision: a},
		{Type: store.Put, Entry: store.Entry{Key: "n/a", Value: []byte("2"), Revision: a2}, Revision: a2},
	}
	same(t, "the past", want, []store.Event{r.next(), r.next()})
	swap(t, s, "other", other, "2")
	remove(t, s, "n/a")
	got := r.next()
	same(t, "a deletion", store.Event{
		Type: store.Deleted, Entry: store.Entry{Key: "n/a", Revision: got.Revision}, Revision: got.Revision,
	}, got)
	remove(t, s, "n/a") // of nothing: not told
	b2 := create(t, s, "n/b", "1", nil)
	same(t, "the present", store.Event{
		Type: store.Put, Entry: store.Entry{Key: "n/b", Value: []byte("1"), Revision: b2}, Revision: b2,
	}, r.next())
	again := watch(t, s, "n/", got.Revision)
	same(t, "another watch from there on", b2, again.next().Revision)
}

func testWatchFromNothing(t *testing.T, b Backend) {
	s := b.Open(t)
	r := watch(t, s, "n/", 0)
	if first := r.next(); first.Type != store.Resync || len(first.Entries) != 0 {
		t.Errorf("an empty store begins with %+v", first)
	}
	create(t, s, "n/a", "1", nil)
	create(t, s, "other", "1", nil)
	r.until(map[string]string{"n/a": "1"})
	late := watch(t, s, "n/", 0)
	if first := late.next(); first.Type != store.Resync {
		t.Errorf("it begins with %+v", first)
	}
	same(t, "known", map[string]string{"n/a": "1"}, late.known)
	create(t, s, "n/b", "1", nil)
	late.until(map[string]string{"n/a": "1", "n/b": "1"})
}

// testWatchOfTheFuture has a reader that knows more than the store: that was set back.
func testWatchOfTheFuture(t *testing.T, b Backend) {
	s := b.Open(t)
	create(t, s, "n/a", "1", nil)
	r := watch(t, s, "n/", 1<<40)
	r.upto = 0
	if first := r.next(); first.Type != store.Resync {
		t.Errorf("it begins with %+v", first)
	}
	create(t, s, "n/b", "1", nil)
	r.until(map[string]string{"n/a": "1", "n/b": "1"})
}

func testWatchEnds(t *testing.T, b Backend) {
	s := b.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, err := s.Watch(ctx, "", 0)
	wants(t, "watch", err, nil)
	stopped := watch(t, s, "", 0)
	stopped.next()
	cancel()
	drained(t, "cancelled", cancelled)
	create(t, s, "a", "1", nil)
	stopped.next()
	stop(t, s)
	drained(t, "stopped", stopped.events)
}

// drained reads to the end.
func drained(t testing.TB, what string, events <-chan store.Event) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-timeout:
			t.Fatalf("%s: the watch does not end", what)
		}
	}
}

func testWatchAcrossCompaction(t *testing.T, b Backend) {
	s := b.Open(t)
	_, before := list(t, s, "")
	open := watch(t, s, "n/", before)
	create(t, s, "n/a", "1", nil)
	create(t, s, "n/b", "1", nil)
	remove(t, s, "n/a")
	want := map[string]string{"n/b": "1"}
	open.next()
	open.next()
	open.until(want)
	b.Compact(t, s)
	late := watch(t, s, "n/", before)
	if first := late.next(); first.Type != store.Resync {
		t.Errorf("a revision that is gone begins with %+v", first)
	}
	same(t, "known", want, late.known)
	create(t, s, "n/c", "1", nil)
	want["n/c"] = "1"
	open.until(want)
	late.until(want)
	if open.resyncs != 0 || late.resyncs != 1 {
		t.Errorf("%d resyncs of who had read all, %d of who had not", open.resyncs, late.resyncs)
	}
}

// testSlowReader writes three times what a watch may hold while nobody reads.
func testSlowReader(t *testing.T, b Backend) {
	s := b.Open(t)
	_, before := list(t, s, "")
	slow, fast := watch(t, s, "n/", before), watch(t, s, "n/", before)
	large := strings.Repeat("x", 60*1024)
	const rounds = 210
	revision := create(t, s, "n/a", large, nil)
	for i := range rounds {
		fast.next()
		revision = swap(t, s, "n/a", revision, fmt.Sprint(i)+large)
	}
	want := map[string]string{"n/a": fmt.Sprint(rounds-1) + large}
	fast.until(want)
	slow.until(want)
	if fast.resyncs != 0 || fast.changes != rounds+1 {
		t.Errorf("who reads at once was told %d changes and %d resyncs", fast.changes, fast.resyncs)
	}
	if slow.resyncs == 0 || slow.changes > rounds*3/4 {
		t.Errorf("who does not was told %d changes and %d resyncs: all were held for it", slow.changes, slow.resyncs)
	}
}

// testWatchAndWriters has readers that begin at any time, while many write.
func testWatchAndWriters(t *testing.T, b Backend) {
	stores := several(t, b)
	_, before := list(t, stores[0], "")
	first := watch(t, stores[0], "n/", before)
	late := make(chan *reader, writers)
	each(stores, func(s store.Store, i int) {
		key := fmt.Sprintf("n/%d", i%7)
		for range 4 {
			_, _ = s.Create(t.Context(), key, []byte("there"), nil)
			_ = s.Delete(t.Context(), key, 0)
		}
		if i%10 == 0 {
			_, now, err := s.List(t.Context(), "n/")
			if err != nil {
				t.Error(err)
				return
			}
			late <- watch(t, s, "n/", now)
		}
	})
	create(t, stores[0], "n/end", "", nil)
	close(late)
	first.until(map[string]string{"n/end": ""})
	if first.resyncs != 0 {
		t.Errorf("%d resyncs", first.resyncs)
	}
	for r := range late {
		for r.next().Entry.Key != "n/end" {
		}
		if r.resyncs != 0 {
			t.Errorf("%d resyncs of a watch from a list", r.resyncs)
		}
	}
}
