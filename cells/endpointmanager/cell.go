package endpointmanager

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the endpointmanager cell. It provides [Manager], [Lookup], [Holder] and [Service], and needs [Steps].
func Module(cfg Config) fx.Option {
	return cell.Module("endpointmanager",
		fx.Supply(fx.Private, cfg),
		fx.Provide(NewTable, fx.Private),
		fx.Provide(func(cfg Config) *admissions { return newAdmissions(cfg.Parallel) }, fx.Private),
		fx.Provide(newHold, fx.Private),
		fx.Provide(newManager, fx.Private),
		fx.Provide(
			func(m *manager) Service { return m },
			func(s Service) Manager { return s },
			func(m *manager) Holder { return m },
			func(t *Table) Lookup { return t },
		),
		fx.Provide(newInstruments, newTraces, fx.Private),
		Observe(func(m *instruments) *instruments { return m }),
		Observe(func(t *traces) *traces { return t }),
		doctor.Check(newChecker),
		capacity.Provide(newResources),
		metrics.Collect(func(m *instruments) *instruments { return m }),
		server.Provide(newRoutes),
		server.Report(newReporter),
		server.Watch(newLatecomers),
	)
}

// newManager ties the manager's life to the program's.
func newManager(lc fx.Lifecycle, p Params, a *admissions, h *hold) *manager {
	m := build(p)
	m.admissions, m.held = a, h
	lc.Append(fx.Hook{OnStart: m.Start, OnStop: m.Stop})
	return m
}
