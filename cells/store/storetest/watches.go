package storetest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

func testWatch(t *testing.T, b Backend) {
	s := b.Open(t)
	r := watch(t, s, "n/")
	same(t, "what an empty store begins with", map[string]string{}, r.known)
	create(t, s, "n/a", "1")
	create(t, s, "other", "1")
	replace(t, s, "n/a", "1", "2")
	replace(t, s, "other", "1", "2")
	late := watch(t, s, "n/")
	same(t, "what a later watch begins with", map[string]string{"n/a": "2"}, late.known)
	remove(t, s, "n/a", "2")
	remove(t, s, "n/a", "2") // of nothing: not sent
	create(t, s, "n/b", "1")
	replace(t, s, "n/b", "1", "1") // no change: not sent
	create(t, s, "n/c", "1")
	a1, a2 := store.Entry{Key: "n/a", Value: []byte("1")}, store.Entry{Key: "n/a", Value: []byte("2")}
	b1, c1 := store.Entry{Key: "n/b", Value: []byte("1")}, store.Entry{Key: "n/c", Value: []byte("1")}
	want := []store.Entry{a1, a2, {Key: "n/a"}, b1, c1}
	for i, entry := range want {
		kind := store.Put
		if entry.Value == nil {
			kind = store.Deleted
		}
		event := r.next()
		same(t, fmt.Sprintf("event %d", i), kind, event.Type)
		same(t, fmt.Sprintf("entry of event %d", i), entry, event.Entry)
	}
	late.until(map[string]string{"n/b": "1", "n/c": "1"})
	same(t, "changes told to the later watch", 3, late.changes)
}

func testWatchEnds(t *testing.T, b Backend) {
	s := b.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, err := s.Watch(ctx, "")
	wantError(t, "watch", err, nil)
	stopped := watch(t, s, "")
	cancel()
	drain(t, "cancelled", cancelled)
	create(t, s, "a", "1")
	stopped.next()
	stop(t, s)
	drain(t, "stopped", stopped.events)
}

// drain reads to the end.
func drain(t testing.TB, what string, events <-chan store.Event) {
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

// testResyncIsOfOneMoment has a writer that counts at both ends of many entries, at the front first.
func testResyncIsOfOneMoment(t *testing.T, b Backend) {
	s := b.Open(t)
	whole := watch(t, s, "n/")
	for i := range 1100 {
		create(t, s, fmt.Sprintf("n/m%04d", i), "")
	}
	create(t, s, "n/a", "0")
	create(t, s, "n/z", "0")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			replace(t, s, "n/a", fmt.Sprint(i), fmt.Sprint(i+1))
			replace(t, s, "n/z", fmt.Sprint(i), fmt.Sprint(i+1))
		}
	}()
	for range 30 {
		known := resync(t, s, "n/")
		var front, back int
		_, _ = fmt.Sscan(known["n/a"], &front)
		_, _ = fmt.Sscan(known["n/z"], &back)
		if len(known) != 1102 || (front != back && front != back+1) {
			t.Errorf("%d entries, %d in front and %d at the end", len(known), front, back)
		}
	}
	cancel()
	<-done
	whole.until(valuesOf(List(t, s, "n/"))) // more than etcd sends at once
}

// resync returns what a watch begins with.
func resync(t testing.TB, s store.Store, prefix string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := s.Watch(ctx, prefix)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	listed(events, known)
	return known
}

// listed reads a list to its end.
func listed(events <-chan store.Event, known map[string]string) {
	for event := range events {
		if !event.Continues {
			clear(known)
		}
		maps.Copy(known, valuesOf(event.Entries))
		if !event.More {
			return
		}
	}
}

// testSlowReader writes three times what a watch may hold while nobody reads.
func testSlowReader(t *testing.T, b Backend) {
	s := b.Open(t)
	slow, fast := watch(t, s, "n/"), watch(t, s, "n/")
	large := strings.Repeat("x", 60*1024)
	const rounds = 210
	create(t, s, "n/a", large)
	was := large
	for i := range rounds {
		fast.next()
		now := fmt.Sprint(i) + large
		replace(t, s, "n/a", was, now)
		was = now
	}
	want := map[string]string{"n/a": was}
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
	readers := make(chan *reader, 1+writers)
	readers <- watch(t, stores[0], "n/")
	each(stores, func(s store.Store, i int) {
		key, value := fmt.Sprintf("n/%d", i%7), []byte("there")
		for range 4 {
			_ = s.Create(t.Context(), key, value)
			_ = s.Remove(t.Context(), key, value)
		}
		if i%10 == 0 {
			readers <- watch(t, s, "n/")
		}
	})
	create(t, stores[0], "n/end", "1")
	close(readers)
	for r := range readers {
		r.until(map[string]string{"n/end": "1"})
		same(t, "resyncs of a reader that keeps up", 0, r.resyncs)
	}
}
