package bandwidth

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the bandwidth cell. It provides the [Step], for the ordered steps.
func Module() fx.Option {
	return cell.Module("bandwidth",
		fx.Provide(
			newStarted,
			func(s *Step, l endpointmanager.Lookup, m endpointmanager.Manager) *Checker {
				return NewChecker(s, l, m)
			},
		),
		doctor.Check(func(c *Checker) *Checker { return c }),
		supervisor.Tasks(func(c *Checker, log *slog.Logger) *task.Task {
			return task.Forever(log, "bandwidth-follow-endpoints", c.Follow)
		}),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, remover link.Remover, log *slog.Logger) *Step {
	s := New(remover, log)
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s
}
