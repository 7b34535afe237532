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

// List returns all entries below prefix.
func List(t testing.TB, s store.Store, prefix string) (all []store.Entry) {
	t.Helper()
	for after, more := "", true; more; {
		var page []store.Entry
		var err error
		if page, more, err = s.Page(t.Context(), prefix, after, 100); err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			all, after = append(all, e), e.Key
		}
	}
	return all
}

func create(t testing.TB, s store.Store, key, value string) {
	t.Helper()
	if err := s.Create(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func replace(t testing.TB, s store.Store, key, was, value string) {
	t.Helper()
	if err := s.Replace(t.Context(), key, []byte(was), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, s store.Store, key, was string) {
	t.Helper()
	if err := s.Remove(t.Context(), key, []byte(was)); err != nil {
		t.Fatal(err)
	}
}

func wantValue(t testing.TB, s store.Store, key, want string) {
	t.Helper()
	if got, err := s.Get(t.Context(), key); err != nil || string(got.Value) != want {
		t.Errorf("value of %.20q: %.20q, want %.20q: error %v", key, got.Value, want, err)
	}
}

// wantError fails when err is not want.
func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// reader knows what a watch has sent, and fails when that cannot be.
type reader struct {
	t       testing.TB
	events  <-chan store.Event
	known   map[string]string
	changes int
	resyncs int // after the first
}

// watch returns a reader that has the first resync.
func watch(t testing.TB, s store.Store, prefix string) *reader {
	t.Helper()
	events, err := s.Watch(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, events: events, resyncs: -1}
	if first := r.next(); first.Type != store.Resync {
		t.Errorf("the watch begins with %+v", first)
	}
	return r
}

// next takes one event in. Each change must follow what is known: none is left out, and none is sent twice.
func (r *reader) next() (event store.Event) {
	r.t.Helper()
	var open bool
	select {
	case event, open = <-r.events:
	case <-time.After(patience):
		r.t.Fatalf("nothing more is told after %.300s", fmt.Sprint(r.known))
	}
	if !open {
		r.t.Fatal("the watch has ended")
	}
	key, value := event.Entry.Key, string(event.Entry.Value)
	was, known := r.known[key]
	switch event.Type {
	case store.Resync:
		if !event.Continues {
			r.known = map[string]string{}
		}
		maps.Copy(r.known, valuesOf(event.Entries))
		if event.More {
			return r.next()
		}
		r.resyncs++
		return event
	case store.Put:
		if known && was == value {
			r.t.Errorf("%s is %.20q already", key, value)
		}
		r.known[key] = value
	case store.Deleted:
		if !known || value != "" {
			r.t.Errorf("%s is deleted, with value %.20q; known before: %t", key, value, known)
		}
		delete(r.known, key)
	}
	r.changes++
	return event
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
