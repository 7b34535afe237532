package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

func testEntries(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	one, two := []byte("one"), []byte("two")
	_, err := s.Get(ctx, "pool/a")
	wantError(t, "get of nothing", err, store.ErrNotFound)
	wantError(t, "replace of nothing", s.Replace(ctx, "pool/a", one, two), store.ErrConflict)
	wantError(t, "replace of nothing by the same", s.Replace(ctx, "pool/a", one, one), store.ErrConflict)
	wantError(t, "replace of nothing, which is no empty value", s.Replace(ctx, "pool/a", nil, one), store.ErrConflict)
	wantError(t, "remove of nothing", s.Remove(ctx, "pool/a", one), nil)

	create(t, s, "pool/a", "one")
	wantError(t, "create again", s.Create(ctx, "pool/a", two), store.ErrExists)
	before, err := s.Position(ctx)
	wantError(t, "position", err, nil)
	wantError(t, "replace by the same", s.Replace(ctx, "pool/a", one, one), nil)
	unchanged, err := s.Position(ctx)
	wantError(t, "position", err, nil)
	if !b.Shared { // others write in the same etcd
		same(t, "position after a replace by the same", before, unchanged)
	}
	wantError(t, "replace of another value", s.Replace(ctx, "pool/a", two, one), store.ErrConflict)
	wantError(t, "replace of another value by the same", s.Replace(ctx, "pool/a", two, two), store.ErrConflict)
	replace(t, s, "pool/a", "one", "two")
	after, err := s.Position(ctx)
	wantError(t, "position", err, nil)
	if isBefore(after, before) || !isBefore(before, after) {
		t.Errorf("position %+v follows %+v", after, before)
	}
	got, err := s.Get(ctx, "pool/a")
	wantError(t, "get", err, nil)
	same(t, "entry", store.Entry{Key: "pool/a", Value: two}, got)
	wantError(t, "remove of another value", s.Remove(ctx, "pool/a", one), store.ErrConflict)
	remove(t, s, "pool/a", "two")
	wantError(t, "remove again", s.Remove(ctx, "pool/a", two), nil)
	_, err = s.Get(ctx, "pool/a")
	wantError(t, "get of what was removed", err, store.ErrNotFound)
	create(t, s, "pool/a", "")
	replace(t, s, "pool/a", "", "not empty")
}

func testPages(t *testing.T, b Backend) {
	s := b.Open(t)
	for _, key := range []string{"node/2", "node/1", "node/10", "nodes/1", "node", "node/1/x", "a"} {
		create(t, s, key, key)
	}
	for prefix, want := range map[string]string{
		"": "a node node/1 node/1/x node/10 node/2 nodes/1", "node/": "node/1 node/1/x node/10 node/2", "node/1/": "node/1/x", "b/": "",
	} {
		for limit := 1; limit <= 8; limit++ {
			var keys []string
			for after, more := "", true; more; {
				var entries []store.Entry
				var err error
				if entries, more, err = s.Page(t.Context(), prefix, after, limit); err != nil || more && len(entries) != limit || len(entries) > limit {
					t.Fatalf("after %q: %d entries, limit %d, more %t: error %v", after, len(entries), limit, more, err)
				}
				for _, e := range entries {
					keys, after = append(keys, e.Key), e.Key
					same(t, "value", e.Key, string(e.Value))
				}
			}
			same(t, "keys below "+prefix, want, strings.Join(keys, " "))
		}
	}
}

func testHostileKeys(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", "A", "a b", "ä", "a\x00", "a\xff", "a\n", "%2f", "a\\b", "*", strings.Repeat("a", 513),
	} {
		_, get := s.Get(ctx, key)
		for name, err := range map[string]error{
			"get": get, "create": s.Create(ctx, key, nil), "replace": s.Replace(ctx, key, nil, nil), "remove": s.Remove(ctx, key, nil),
		} {
			wantError(t, fmt.Sprintf("%s of %.20q", name, key), err, store.ErrInvalid)
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s of %.20q: kind %s", name, key, fault.KindOf(err))
			}
		}
	}
	for _, prefix := range []string{"/", "a", "a//", "../A/"} {
		_, _, err := s.Page(ctx, prefix, "", 1)
		wantError(t, "page of "+prefix, err, store.ErrInvalid)
		_, err = s.Watch(ctx, prefix)
		wantError(t, "watch of "+prefix, err, store.ErrInvalid)
	}
	for _, key := range []string{"..", "a/../b", "10.0.0.0", "fd00::1:2", "a_b-c.d/e:f", strings.Repeat("a", 512)} {
		create(t, s, key, key)
		wantValue(t, s, key, key)
	}
	if entries := List(t, s, ""); len(entries) != 6 {
		t.Errorf("%d entries", len(entries))
	}
}

func testHostileValues(t *testing.T, b Backend) {
	s, ctx := b.Open(t), t.Context()
	for i, value := range []string{"", "\x00", "\xff\xfe", "{}", strings.Repeat("\x00", 64*1024)} {
		key := fmt.Sprintf("v/%d", i)
		create(t, s, key, value)
		wantValue(t, s, key, value)
	}
	large := make([]byte, 64*1024+1)
	wantError(t, "create", s.Create(ctx, "large", large), store.ErrTooLarge)
	err := s.Replace(ctx, "v/0", nil, large)
	wantError(t, "replace", err, store.ErrTooLarge)
	if fault.KindOf(err) != fault.TooLarge {
		t.Errorf("kind %s", fault.KindOf(err))
	}
	r := watch(t, s, "mine/")
	value := []byte("mine")
	wantError(t, "create", s.Create(ctx, "mine/a", value), nil)
	value[0] = 'x'
	wantValue(t, s, "mine/a", "mine")
	same(t, "a value that its writer changes afterwards, as it is told", "mine", string(r.next().Entry.Value))
}

// calls are all there are, with a context.
func calls(ctx context.Context, s store.Store) map[string]error {
	_, get := s.Get(ctx, "a")
	_, _, page := s.Page(ctx, "", "", 1)
	_, position := s.Position(ctx)
	return map[string]error{
		"get": get, "page": page, "position": position,
		"create": s.Create(ctx, "a", nil), "replace": s.Replace(ctx, "a", nil, []byte("1")), "remove": s.Remove(ctx, "a", nil),
	}
}

func testCancelled(t *testing.T, b Backend) {
	s := b.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range calls(ctx, s) {
		wantError(t, name, err, context.Canceled)
	}
	_, err := s.Watch(ctx, "")
	wantError(t, "watch", err, context.Canceled)
	if entries := List(t, s, ""); len(entries) != 0 {
		t.Errorf("%d entries", len(entries))
	}
}

func testStopped(t *testing.T, b Backend) {
	s := b.Open(t)
	create(t, s, "kept", "1")
	before, err := s.Position(t.Context())
	wantError(t, "position", err, nil)
	stop(t, s)
	for name, err := range calls(t.Context(), s) {
		wantError(t, name, err, store.ErrUnavailable)
	}
	_, err = s.Watch(t.Context(), "")
	wantError(t, "watch", err, store.ErrUnavailable)
	again := b.Open(t)
	wantValue(t, again, "kept", "1")
	if after, err := again.Position(t.Context()); err != nil || isBefore(after, before) {
		t.Errorf("position %+v after a restart, %+v before: error %v", after, before, err)
	}
}

func isBefore(p, other store.Position) bool {
	return p.Store != other.Store || p.Term < other.Term || p.Revision < other.Revision
}
