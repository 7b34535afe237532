package datapath

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the datapath cell. It provides [Links], [Uplinks], [Maps], [Counters], the [policy.Enforcer],
// [policy.Connections], [flow.Source] and [flow.Translations], and the [Step] on them, for the ordered steps.
func Module(cfg Config) fx.Option {
	return cell.Module("datapath",
		fx.Supply(cfg, fx.Private),
		fx.Provide(
			newStarted,
			func(d *Datapath) (Links, Maps, Counters, Pins) { return d.Links(), d.Maps(), d.Counters(), d.Pins() },
			(*Datapath).Uplinks,
			(*Datapath).Enforcer,
			(*Datapath).FlowEvents,
			(*Datapath).Translations,
			(*Datapath).OpenConnections,
			func(x *Enforcer) policy.Enforcer { return x },
			NewStep,
			func(d *Datapath, l endpointmanager.Lookup, m endpointmanager.Manager, r link.Remover) *Checker {
				return NewChecker(d, l, m, r)
			},
		),
		endpointmanager.Describe(newDescriber),
		doctor.Check(func(c *Checker) *Checker { return c }),
		capacity.Provide(NewCapacitySource),
		supervisor.Tasks(func(d *Datapath, log *slog.Logger) *task.Task {
			return task.Every(log, task.Round{Name: "datapath-sweep-connections", Interval: sweepInterval, Run: d.SweepConnections})
		}),
		supervisor.Tasks(func(d *Datapath, log *slog.Logger) *task.Task {
			return task.Forever(log, "datapath-follow-uplinks", d.uplinks.run)
		}),
		supervisor.Tasks(func(d *Datapath, log *slog.Logger) *task.Task {
			return task.Forever(log, "datapath-follow-from-uplink", d.fromUplinks.run)
		}),
		supervisor.Tasks(func(x *Enforcer, log *slog.Logger) *task.Task {
			return task.Retry(log, "datapath-follow-nftables", uplinksPause, x.Follow)
		}),
		supervisor.Tasks(func(c *Checker, log *slog.Logger) *task.Task {
			return task.Forever(log, "datapath-follow-endpoints", c.Follow)
		}),
		server.Report(newReporter),
		metrics.Collect(newCollector),
		metrics.Collect(newPolicyCollector),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, cfg Config, log *slog.Logger) (*Datapath, error) {
	d, err := New(cfg, log)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{OnStart: d.Start, OnStop: d.Stop})
	return d, nil
}
