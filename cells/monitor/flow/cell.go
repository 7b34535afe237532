package flow

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the flow cell. It provides [*Collector] and [policy.Flows], and takes a [Source] and [Translations].
func Module(cfg Config) fx.Option {
	self := func(c *Collector) *Collector { return c }
	return cell.Module("flow",
		fx.Supply(cfg, fx.Private),
		fx.Provide(func(v *policy.View, n *policy.Names, l endpointmanager.Lookup) (Policies, Names, Endpoints) {
			return v, n, l
		}, fx.Private),
		fx.Provide(New, func(c *Collector) policy.Flows { return c }),
		endpointmanager.Subscribe(func(c *Collector) *directory { return c.directory }),
		server.Provide(self),
		server.Watch(self),
		supervisor.Tasks(newTask),
		metrics.Collect(newMetrics),
	)
}
