package flow

import (
	"log/slog"

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
		fx.Provide(build, func(c *Collector) policy.Flows { return c }),
		endpointmanager.Subscribe(func(c *Collector) *directory { return c.directory }),
		server.Provide(self),
		server.Watch(self),
		supervisor.Tasks(newTask),
		metrics.Collect(newMetrics),
	)
}

type params struct {
	fx.In

	Config       Config
	Log          *slog.Logger
	Source       Source
	Translations Translations
	Policies     *policy.View
	Names        *policy.Names
	Endpoints    endpointmanager.Lookup
}

func build(p params) (*Collector, error) {
	return New(p.Config, Params{Source: p.Source, Translations: p.Translations, Policies: p.Policies, Names: p.Names, Endpoints: p.Endpoints, Log: p.Log})
}
