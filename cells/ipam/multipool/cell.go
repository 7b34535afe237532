package multipool

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/cell"
)

// Module is the multipool cell. It needs a [cluster.Backend] and an [*allocator.Allocator], and provides [*Controller], [*PoolAdmin] and
// [*NodeAdmin].
func Module(cfg Config) fx.Option {
	return cell.Module("multipool",
		fx.Supply(fx.Private, cfg),
		fx.Provide(newController, NewPoolAdmin, NewNodeAdmin),
		server.Provide(newRoutes),
		server.Watch(newWatcher),
		capacity.Provide(func(c *Controller) source { return source{c} }),
		metrics.Collect(func(c *Controller) *meters { return c.meters }),
		doctor.Check(NewChecker),
	)
}

func newController(lc fx.Lifecycle, cfg Config, b cluster.Backend, a *allocator.Allocator, log *slog.Logger) (*Controller, error) {
	c, err := NewOn(cfg, b, a, boottime.Now, log)
	if err == nil {
		lc.Append(fx.StopHook(c.Stop))
	}
	return c, err
}

// NewOn is New of a controller that the allocator asks for more.
func NewOn(cfg Config, b cluster.Backend, a *allocator.Allocator, clock func() time.Duration, log *slog.Logger) (*Controller, error) {
	c, err := New(cfg, b, a, clock, log)
	if err != nil {
		return nil, err
	}
	a.Pools().SetLowWatermark(cfg.PreAllocate, c.Kick)
	a.Pools().SetRefill(func(ctx context.Context, pool string, want endpointmanager.Addresses) error {
		return c.Refill(ctx, pool, want.List()...)
	})
	return c, nil
}

// watcher starts the controller when the API serves: what is in use on the node has been restored by then.
type watcher struct{ controller *Controller }

func newWatcher(c *Controller) watcher { return watcher{c} }

// Serving implements server.Watcher.
func (w watcher) Serving() {
	if err := w.controller.Start(); err != nil {
		w.controller.log.Error("no address is given out", "error", err)
		w.controller.addresses.Suspend(err)
	}
}

// Stopping implements server.Watcher.
func (watcher) Stopping() {}

// source reports in porin status that the node gives out no address because its key is contested. STATUS does not fail for that.
type source struct{ controller *Controller }

// Resources implements [capacity.Source].
func (s source) Resources() []capacity.Resource {
	return []capacity.Resource{{Name: "node-key", Err: s.controller.Status().Cloned}}
}
