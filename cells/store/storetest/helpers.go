package storetest

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/store"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

func create(t testing.TB, s store.Store, key, value string, l store.Lease) int64 {
	t.Helper()
	revision, err := s.Create(t.Context(), key, []byte(value), l)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func swap(t testing.TB, s store.Store, key string, revision int64, value string) int64 {
	t.Helper()
	revision, err := s.CompareAndSwap(t.Context(), key, revision, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func remove(t testing.TB, s store.Store, key string) {
	t.Helper()
	if err := s.Delete(t.Context(), key, 0); err != nil {
		t.Fatal(err)
	}
}

func list(t testing.TB, s store.Store, prefix string) ([]store.Entry, int64) {
	t.Helper()
	entries, revision, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return entries, revision
}

func lease(t testing.TB, s store.Store) store.Lease {
	t.Helper()
	l, err := s.Lease(t.Context(), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wants fails when err is not want.
func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// closes fails when the channel is not closed in time.
func closes(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// gone waits until the entry is.
func gone(t testing.TB, s store.Store, key string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		_, err := s.Get(t.Context(), key)
		if errors.Is(err, store.ErrNotFound) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is there (%v)", key, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// reader knows what a watch has told it, and fails when that cannot be.
type reader struct {
	t       testing.TB
	events  <-chan store.Event
	known   map[string]string
	told    int64 // the revision of the last change
	upto    int64 // where another watch would go on
	changes int
	resyncs int
}

func watch(t testing.TB, s store.Store, prefix string, after int64) *reader {
	t.Helper()
	events, err := s.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatal(err)
	}
	return &reader{t: t, events: events, known: map[string]string{}, told: after, upto: after}
}

// next takes one event in.
func (r *reader) next() store.Event {
	r.t.Helper()
	select {
	case event, open := <-r.events:
		if !open {
			r.t.Fatal("the watch has ended")
		}
		r.take(event)
		return event
	case <-time.After(patience):
		r.t.Fatalf("nothing more is told after %.300s", fmt.Sprint(r.known))
	}
	return store.Event{}
}

func (r *reader) take(event store.Event) {
	r.t.Helper()
	if event.Revision < r.upto {
		r.t.Errorf("revision %d after %d", event.Revision, r.upto)
	}
	r.upto = event.Revision
	if event.Type == store.Resync {
		r.resyncs++
		r.told = event.Revision
		r.known = valuesOf(event.Entries)
		return
	}
	r.changes++
	if event.Entry.Revision < r.told {
		r.t.Errorf("%s of %s at revision %d is told after %d", event.Type, event.Entry.Key, event.Entry.Revision, r.told)
	}
	r.told = event.Entry.Revision
	if event.Type == store.Put {
		r.known[event.Entry.Key] = string(event.Entry.Value)
	} else {
		delete(r.known, event.Entry.Key)
	}
}

// until reads until the reader knows just this.
func (r *reader) until(want map[string]string) {
	r.t.Helper()
	for !maps.Equal(r.known, want) {
		r.next()
	}
}

func valuesOf(entries []store.Entry) map[string]string {
	values := map[string]string{}
	for _, entry := range entries {
		values[entry.Key] = string(entry.Value)
	}
	return values
}

func same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
