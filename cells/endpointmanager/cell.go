package endpointmanager

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the endpointmanager cell. It provides [Manager], [Lookup] and [Service], and needs [Steps].
func Module(cfg Config) fx.Option {
	return cell.Module("endpointmanager",
		fx.Supply(fx.Private, cfg),
		fx.Provide(NewTable, fx.Private),
		fx.Provide(newManager, fx.Private),
		fx.Provide(
			func(m *manager) Service { return m },
			func(s Service) Manager { return s },
			func(t *Table) Lookup { return t },
		),
		fx.Provide(newInstruments, fx.Private),
		Observe(func(m *instruments) *instruments { return m }),
		metrics.Collect(func(m *instruments) *instruments { return m }),
		server.Provide(newRoutes),
		server.Report(newReporter),
		server.Watch(newLatecomers),
	)
}

// newManager ties the manager's life to the program's.
func newManager(lc fx.Lifecycle, p Params) *manager {
	m := build(p)
	lc.Append(fx.Hook{OnStart: m.Start, OnStop: m.Stop})
	return m
}
