package supervisor

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
)

// Module is the supervisor cell. It provides [*Supervisor] and runs it: list it after the cells that contribute tasks.
func Module(cfg Config) fx.Option {
	return cell.Module("supervisor",
		fx.Supply(cfg, fx.Private),
		fx.Provide(build),
		server.Provide(func(s *Supervisor) routes { return routes{s} }),
		server.Report(func(s *Supervisor) *Supervisor { return s }),
		server.Watch(func(s *Supervisor) *Supervisor { return s }),
		metrics.Collect(newMetrics),
		fx.Invoke(run),
	)
}

// Tasks contributes the [*task.Task] that newTask builds: supervisor.Tasks(newSampler). It starts when everything is
// restored.
func Tasks(newTask any) fx.Option {
	return fx.Provide(fx.Annotate(newTask, fx.ResultTags(`group:"supervisor.tasks"`)))
}

type params struct {
	fx.In

	Config    Config
	Log       *slog.Logger
	Barrier   *restored.Barrier
	Tasks     []*task.Task     `group:"supervisor.tasks"`
	Reporters []HealthReporter `group:"supervisor.reporters"`
}

func build(p params) (*Supervisor, error) {
	return New(p.Config, p.Log, p.Barrier, p.Tasks, p.Reporters)
}

func run(lc fx.Lifecycle, sd fx.Shutdowner, log *slog.Logger, s *Supervisor) {
	failed := func(err error) {
		log.Error("a task has ended, stopping the agent", "error", err)
		_ = sd.Shutdown(fx.ExitCode(1))
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error { return s.Start(ctx, failed) },
		OnStop:  s.Stop,
	})
}
