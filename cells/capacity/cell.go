package capacity

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the capacity cell. It provides [*Capacity], which samples from when everything is restored.
func Module() fx.Option {
	return cell.Module("capacity",
		fx.Provide(build),
		server.Report(func(c *Capacity) *Capacity { return c }),
		supervisor.Tasks(func(c *Capacity, log *slog.Logger) *task.Task { return c.Sampler(log) }),
		supervisor.Health(func(c *Capacity) *Capacity { return c }),
		doctor.Check(newChecker),
		metrics.Collect(newCollector),
	)
}

type params struct {
	fx.In

	Sources []Source `group:"capacity.sources"`
}

func build(p params) *Capacity { return New(p.Sources...) }
