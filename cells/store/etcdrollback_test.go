package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// TestWatchEtcdRolledBack has more changes by then than the watch had sent.
func TestWatchEtcdRolledBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(*etcdtest.Server, testing.TB){"from a backup": (*etcdtest.Server).SetBack, "to nothing": (*etcdtest.Server).Wipe} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := etcdtest.Start(t, nil)
			cfg, wire := server.Config(), server.Wire(t)
			another, s := storetest.Open(t, cfg), storetest.Open(t, wire.Config(cfg))
			create(t, s, "a/kept")
			server.Save(t)
			for i := range 20 {
				create(t, s, fmt.Sprintf("a/lost-%d", i))
			}
			events, err := s.Watch(t.Context(), "a/")
			if err != nil {
				t.Fatal(err)
			}
			if first := <-events; len(first.Entries) != 21 {
				t.Fatalf("%d entries", len(first.Entries))
			}
			create(t, s, "a/last")
			<-events // so it follows
			rollBack(t, server, wire, back)
			testEventually(t, func() bool { _, err := s.Get(t.Context(), "a/none"); return errors.Is(err, store.ErrNotFound) })
			for i := range 30 {
				testEventually(t, func() bool {
					err := another.Create(t.Context(), fmt.Sprintf("a/new-%d", i), nil)
					return err == nil || errors.Is(err, store.ErrExists)
				})
			}
			wantKnown(t, events, keysOf(storetest.List(t, another, "a/")))
		})
	}
}

// rollBack does so without a word to who is behind the wire.
func rollBack(t *testing.T, server *etcdtest.Server, wire *etcdtest.Wire, back func(*etcdtest.Server, testing.TB)) {
	t.Helper()
	wire.Hang()
	back(server, t)
	wire.Cut()
	wire.Resume()
}

// wantKnown waits until who follows the events knows these keys.
func wantKnown(t *testing.T, events <-chan store.Event, want []string) {
	t.Helper()
	var known []string
	resynced := false
	for end := time.After(10 * time.Second); ; {
		select {
		case event := <-events:
			switch event.Type {
			case store.Resync:
				if !event.Continues {
					known = nil
				}
				known, resynced = append(known, keysOf(event.Entries)...), !event.More
			case store.Put:
				known = append(known, event.Entry.Key)
			case store.Deleted:
				known = slices.DeleteFunc(known, func(key string) bool { return key == event.Entry.Key })
			}
			slices.Sort(known)
			if resynced && slices.Equal(slices.Compact(known), want) {
				return
			}
		case <-end:
			t.Fatalf("known: %s\nwant: %s", strings.Join(known, " "), strings.Join(want, " "))
		}
	}
}

func keysOf(entries []store.Entry) (keys []string) {
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	slices.Sort(keys)
	return keys
}

func testEventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so after 10 s")
		}
	}
}
