package store_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		cfg, clock := store.DefaultConfig(), new(atomic.Int64)
		cfg.Dir = t.TempDir()
		began := time.Now()
		boot := func() time.Duration { return time.Hour + time.Since(began) + time.Duration(clock.Load()) }
		return storetest.Backend{
			Open:      func(t testing.TB) store.Service { return openAt(t, cfg, boot) },
			Compact:   overwrite,
			EndLeases: func(testing.TB) { clock.Add(int64(time.Minute)) }, // as when the node has slept
		}
	})
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, nil)
	fresh := func(t testing.TB) storetest.Backend {
		cfg := server.Config()
		cfg.Timeout = 2 * time.Second
		return storetest.Backend{
			Open:      func(t testing.TB) store.Service { return storetest.Open(t, cfg) },
			Shared:    true,
			Compact:   func(t testing.TB, _ store.Store) { server.Compact(t) },
			EndLeases: func(t testing.TB) { server.EndLeases(t, cfg.Etcd.Prefix) },
			Interrupt: func(t testing.TB, during func()) {
				server.Stop()
				defer server.Start(t)
				during()
			},
		}
	}
	t.Run("there", func(t *testing.T) { storetest.Run(t, fresh) })
	t.Run("away", func(t *testing.T) { storetest.RunAway(t, fresh) })
}

// openAt opens a store whose leases are by this clock.
func openAt(t testing.TB, cfg store.Config, boot func() time.Duration) store.Service {
	t.Helper()
	s, err := store.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store.SetClock(s, boot)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// overwrite writes more than a history holds.
func overwrite(t testing.TB, s store.Store) {
	t.Helper()
	for i := range 100 {
		if _, err := s.Create(t.Context(), fmt.Sprintf("filler/%d", i), []byte(strings.Repeat("x", 60*1024)), nil); err != nil {
			t.Fatal(err)
		}
	}
}
