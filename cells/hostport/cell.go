package hostport

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the cell of host ports. It provides the [Step], for the ordered steps.
func Module() fx.Option {
	return cell.Module("hostport",
		fx.Provide(newStarted),
		doctor.Check(newChecker),
		supervisor.Tasks(newTask),
		metrics.Collect(newCollector),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, log *slog.Logger) *Step {
	s := New(log)
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s
}

func newTask(s *Step, log *slog.Logger) *task.Task {
	return task.Forever(log, "hostport-follow-nftables", s.Follow)
}
