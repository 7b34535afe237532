package doctor

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the doctor cell. It provides [*Doctor], which examines from when everything is restored.
func Module(cfg Config) fx.Option {
	return cell.Module("doctor",
		fx.Supply(cfg, fx.Private),
		fx.Provide(build),
		server.Provide(func(d *Doctor) *routes { return &routes{d} }),
		server.Report(newReporter),
		supervisor.Tasks(func(d *Doctor) *task.Task { return d.examinations }),
		supervisor.Tasks(func(d *Doctor) *task.Task { return d.repairs }),
		metrics.Collect(func(d *Doctor) *meters { return d.meters }),
	)
}

type params struct {
	fx.In

	Lifecycle fx.Lifecycle
	Config    Config
	Log       *slog.Logger
	Checkers  []Checker `group:"doctor.checkers"`
}

func build(p params) (*Doctor, error) {
	d, err := New(p.Config, p.Log, p.Checkers...)
	if err == nil {
		p.Lifecycle.Append(fx.StopHook(d.Stop))
	}
	return d, err
}
