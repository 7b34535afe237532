package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

func testEntries(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	_, err := s.Get(ctx, "pool/a")
	wants(t, "get of nothing", err, store.ErrNotFound)
	_, err = s.CompareAndSwap(ctx, "pool/a", 1, nil)
	wants(t, "swap of nothing", err, store.ErrConflict)
	wants(t, "delete of nothing", s.Delete(ctx, "pool/a", 0), nil)
	wants(t, "delete of nothing at a revision", s.Delete(ctx, "pool/a", 1), nil)

	first := create(t, s, "pool/a", "one", nil)
	_, err = s.Create(ctx, "pool/a", []byte("again"), nil)
	wants(t, "create again", err, store.ErrExists)
	second := swap(t, s, "pool/a", first, "two")
	if second <= first {
		t.Errorf("revision %d after %d", second, first)
	}
	for _, old := range []int64{-1, 0, first, second + 1} {
		_, err = s.CompareAndSwap(ctx, "pool/a", old, []byte("late"))
		wants(t, fmt.Sprintf("swap of revision %d", old), err, store.ErrConflict)
	}
	wants(t, "delete of an old revision", s.Delete(ctx, "pool/a", first), store.ErrConflict)
	got, err := s.Get(ctx, "pool/a")
	wants(t, "get", err, nil)
	same(t, "entry", store.Entry{Key: "pool/a", Value: []byte("two"), Revision: second}, got)
	wants(t, "delete", s.Delete(ctx, "pool/a", second), nil)
	wants(t, "delete again", s.Delete(ctx, "pool/a", second), nil)
	if third := create(t, s, "pool/a", "", nil); third <= second {
		t.Errorf("revision %d after %d", third, second)
	}
	_, err = s.CompareAndSwap(ctx, "pool/a", second, []byte("late"))
	wants(t, "swap of a revision of an earlier life", err, store.ErrConflict)
}

func testLists(t *testing.T, b Backend) {
	s := b.Open(t)
	entries, empty := list(t, s, "")
	if len(entries) != 0 || empty <= 0 {
		t.Errorf("%d entries at revision %d", len(entries), empty)
	}
	for _, key := range []string{"node/2", "node/1", "node/10", "nodes/1", "node", "node/1/x", "a"} {
		create(t, s, key, key, nil)
	}
	for prefix, want := range map[string]string{
		"": "a node node/1 node/1/x node/10 node/2 nodes/1", "node/": "node/1 node/1/x node/10 node/2", "node/1/": "node/1/x", "b/": "",
	} {
		entries, revision := list(t, s, prefix)
		var keys []string
		for _, entry := range entries {
			keys = append(keys, entry.Key)
			if string(entry.Value) != entry.Key || entry.Revision <= empty || entry.Revision > revision {
				t.Errorf("entry %+v at revision %d", entry, revision)
			}
		}
		same(t, "keys below "+prefix, want, strings.Join(keys, " "))
	}
}

// testListIsOfOneMoment has a writer that counts at both ends of many entries, at the front first.
func testListIsOfOneMoment(t *testing.T, b Backend) {
	s := b.Open(t)
	_, before := list(t, s, "")
	for i := range 1100 {
		create(t, s, fmt.Sprintf("n/m%04d", i), "", nil)
	}
	first, last := create(t, s, "n/a", "0", nil), create(t, s, "n/z", "0", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ctx.Err() == nil; i++ {
			first = swap(t, s, "n/a", first, fmt.Sprint(i))
			last = swap(t, s, "n/z", last, fmt.Sprint(i))
		}
	}()
	for range 30 {
		entries, _ := list(t, s, "n/")
		var front, back int
		_, _ = fmt.Sscan(string(entries[0].Value), &front)
		_, _ = fmt.Sscan(string(entries[len(entries)-1].Value), &back)
		if len(entries) != 1102 || (front != back && front != back+1) {
			t.Errorf("%d entries, %d in front and %d at the end", len(entries), front, back)
		}
	}
	cancel()
	<-done
	entries, _ := list(t, s, "n/")
	watch(t, s, "n/", before).until(valuesOf(entries)) // more than etcd tells at once
}

func testHostileKeys(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", "A", "a b", "ä", "a\x00", "a\xff", "a\n", "%2f", "a\\b", "*", strings.Repeat("a", 513),
	} {
		_, get := s.Get(ctx, key)
		_, create := s.Create(ctx, key, nil, nil)
		_, swap := s.CompareAndSwap(ctx, key, 1, nil)
		for name, err := range map[string]error{"get": get, "create": create, "swap": swap, "delete": s.Delete(ctx, key, 0)} {
			wants(t, fmt.Sprintf("%s of %.20q", name, key), err, store.ErrInvalid)
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s of %.20q: kind %s", name, key, fault.KindOf(err))
			}
		}
	}
	for _, prefix := range []string{"/", "a", "a//", "../A/"} {
		_, _, err := s.List(ctx, prefix)
		wants(t, "list of "+prefix, err, store.ErrInvalid)
		_, err = s.Watch(ctx, prefix, 0)
		wants(t, "watch of "+prefix, err, store.ErrInvalid)
	}
	for _, key := range []string{"..", "a/../b", "10.0.0.0", "fd00::1:2", "a_b-c.d/e:f", strings.Repeat("a", 512)} {
		create(t, s, key, key, nil)
		got, err := s.Get(ctx, key)
		if err != nil || string(got.Value) != key {
			t.Errorf("get of %.20q: %.20q, %v", key, got.Value, err)
		}
	}
	if entries, _ := list(t, s, ""); len(entries) != 6 {
		t.Errorf("%d entries", len(entries))
	}
}

func testHostileValues(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	for i, value := range []string{"", "\x00", "\xff\xfe", "{}", strings.Repeat("\x00", 64*1024)} {
		key := fmt.Sprintf("v/%d", i)
		create(t, s, key, value, nil)
		got, err := s.Get(ctx, key)
		if err != nil || string(got.Value) != value {
			t.Errorf("value %d has %d bytes of %d, %v", i, len(got.Value), len(value), err)
		}
	}
	large := make([]byte, 64*1024+1)
	_, err := s.Create(ctx, "large", large, nil)
	wants(t, "create", err, store.ErrTooLarge)
	_, err = s.CompareAndSwap(ctx, "v/0", 1, large)
	wants(t, "swap", err, store.ErrTooLarge)
	if fault.KindOf(err) != fault.TooLarge {
		t.Errorf("kind %s", fault.KindOf(err))
	}
	_, before := list(t, s, "")
	value := []byte("mine")
	revision, err := s.Create(ctx, "mine", value, nil)
	wants(t, "create", err, nil)
	value[0] = 'x'
	got, err := s.Get(ctx, "mine")
	wants(t, "get", err, nil)
	want := store.Entry{Key: "mine", Value: []byte("mine"), Revision: revision}
	same(t, "a value that its writer changes afterwards", want, got)
	same(t, "the same, as it is told", want, watch(t, s, "", before).next().Entry)
}

// calls are all there are, with a context.
func calls(ctx context.Context, s store.Store) map[string]error {
	_, get := s.Get(ctx, "a")
	_, _, list := s.List(ctx, "")
	_, create := s.Create(ctx, "a", nil, nil)
	_, swap := s.CompareAndSwap(ctx, "a", 1, nil)
	_, lease := s.Lease(ctx, time.Second)
	return map[string]error{"get": get, "list": list, "create": create, "swap": swap, "delete": s.Delete(ctx, "a", 0), "lease": lease}
}

func testCancelled(t *testing.T, b Backend) {
	s := b.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range calls(ctx, s) {
		wants(t, name, err, context.Canceled)
	}
	_, err := s.Watch(ctx, "", 0)
	wants(t, "watch", err, context.Canceled)
	if entries, _ := list(t, s, ""); len(entries) != 0 {
		t.Errorf("%d entries", len(entries))
	}
}

func testStopped(t *testing.T, b Backend) {
	s := b.Open(t)
	create(t, s, "kept", "", nil)
	stop(t, s)
	for name, err := range calls(t.Context(), s) {
		wants(t, name, err, store.ErrUnavailable)
	}
	_, err := s.Watch(t.Context(), "", 0)
	wants(t, "watch", err, store.ErrUnavailable)
	if entries, _ := list(t, b.Open(t), ""); len(entries) != 1 {
		t.Errorf("%d entries after a restart", len(entries))
	}
}
