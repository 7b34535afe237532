package endpointmanager

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
)

// Module is the endpointmanager cell. It provides [Manager], [Lookup], [Holder] and [Service], and needs
// [endpoint.Steps].
func Module(cfg Config) fx.Option {
	return cell.Module("endpointmanager",
		fx.Supply(fx.Private, cfg),
		fx.Provide(restored.New),
		fx.Provide(NewTable, fx.Private),
		fx.Provide(func(cfg Config) *admission.Queues { return admission.NewQueues(cfg.Parallel) }, fx.Private),
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
		metrics.Collect(newHeldEndpoints),
		server.Provide(newRoutes),
		server.Report(newReporter),
		supervisor.Tasks(func(m *manager) *task.Task { return m.expiry }),
		supervisor.Tasks(func(m *manager) *task.Task { return m.deletionRecords.task }),
		supervisor.Health(newHealth),
		server.Watch(func(m *manager) *deletionRecords { return m.deletionRecords }),
	)
}

// newManager ties the manager's life to the program's.
func newManager(lc fx.Lifecycle, p Params, queues *admission.Queues, barrier *restored.Barrier) *manager {
	m := build(p, queues, barrier)
	lc.Append(fx.Hook{OnStart: m.Start, OnStop: m.Stop})
	return m
}
