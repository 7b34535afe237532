package store_test

import (
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		cfg, _ := inFolder(t)
		return storetest.Backend{Open: func(t testing.TB) store.Service { return storetest.Open(t, cfg) }}
	})
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, nil)
	fresh := func(t testing.TB) storetest.Backend {
		cfg := server.Config()
		cfg.Timeout = 2 * time.Second
		return storetest.Backend{
			Open:    func(t testing.TB) store.Service { return storetest.Open(t, cfg) },
			Shared:  true,
			Compact: func(t testing.TB) { server.Compact(t) },
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
