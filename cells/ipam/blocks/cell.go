package blocks

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/cell"
)

// Module is the blocks cell. It needs a [store.Store] and a [Local], and provides [*Pools] and [*Manager].
func Module(cfg Config) fx.Option {
	return cell.Module("blocks",
		fx.Supply(fx.Private, cfg),
		fx.Provide(NewPools, newManager),
		server.Provide(newRoutes),
		server.Watch(newWatcher),
		capacity.Provide(func(m *Manager) source { return source{m} }),
		metrics.Collect(func(m *Manager) *meters { return m.meters }),
		doctor.Check(func(c Config, s store.Store, m *Manager, l Local) *Checker { return NewChecker(c, s, m, l) }),
	)
}

func newManager(lc fx.Lifecycle, cfg Config, s store.Store, local Local, log *slog.Logger) (*Manager, error) {
	m, err := New(cfg, s, local, boottime.Now, log)
	if err == nil {
		lc.Append(fx.StopHook(m.Stop))
	}
	return m, err
}

// watcher begins to hold blocks when the API serves: what is in use has been restored by then, and a block of which nothing
// is in use is empty.
type watcher struct{ manager *Manager }

func newWatcher(m *Manager) watcher { return watcher{m} }

// Serving implements server.Watcher.
func (w watcher) Serving() { w.manager.Start() }

// Stopping implements server.Watcher.
func (watcher) Stopping() {}

// Start has [Manager.Run] run until Stop. What the node knows of its blocks from the last time is given out from at once. It
// is called once.
func (m *Manager) Start() {
	m.recall()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	m.mu.Lock()
	m.stop = func() { cancel(); <-ended }
	m.mu.Unlock()
	go func() {
		defer close(ended)
		if err := m.Run(ctx); err != nil {
			m.log.Error("no blocks are claimed or given back any more", "error", err)
		}
	}()
}

// Stop ends what Start began, and waits for it. Without a Start it does nothing.
func (m *Manager) Stop(context.Context) error {
	m.mu.Lock()
	stop := m.stop
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	return nil
}
