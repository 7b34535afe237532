package multipool

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/adminapi"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the multipool cell. It needs a [cluster.Backend] and an [*allocator.Allocator], and provides [*Controller],
// which is the [allocator.Refiller], and [*admin.Pools]. It needs [*admin.Nodes], and a [KubernetesNode], which may be
// nil.
func Module(cfg Config) fx.Option {
	return cell.Module("multipool",
		fx.Supply(fx.Private, cfg),
		fx.Provide(newController, admin.NewPools, func(c *Controller) (allocator.Refiller, adminapi.Agent) { return c, c }),
		server.Provide(adminapi.NewRoutes),
		server.Report(func(c *Controller) *Controller { return c }),
		supervisor.Tasks(func(c *Controller) *task.Task { return c.task }),
		supervisor.Health(func(c *Controller) *Controller { return c }),
		capacity.Provide(func(c *Controller) *Controller { return c }),
		metrics.Collect(newCollector),
		doctor.Check(NewChecker),
	)
}

func newController(lc fx.Lifecycle, cfg Config, b cluster.Backend, node KubernetesNode, a *allocator.Allocator, log *slog.Logger) (*Controller, error) {
	c, err := New(cfg, b, node, a, boottime.Now, log)
	if err == nil {
		lc.Append(fx.StopHook(c.Stop))
	}
	return c, err
}
