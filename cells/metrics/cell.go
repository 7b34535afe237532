package metrics

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"porin.dev/porin/internal/cell"
)

// Module is the metrics cell. It provides [*Exporter] and runs it.
func Module(cfg Config) fx.Option {
	return cell.Module("metrics",
		fx.Supply(cfg, fx.Private),
		fx.Provide(build),
		fx.Invoke(run),
	)
}

type params struct {
	fx.In

	Config     Config
	Log        *slog.Logger
	Collectors []prometheus.Collector `group:"metrics.collectors"`
}

func build(p params) (*Exporter, error) { return New(p.Config, p.Log, p.Collectors...) }

func run(lc fx.Lifecycle, sd fx.Shutdowner, log *slog.Logger, e *Exporter) {
	failed := func(err error) {
		log.Error("metrics ended, stopping the agent", "error", err)
		_ = sd.Shutdown(fx.ExitCode(1))
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error { return e.Start(ctx, failed) },
		OnStop:  e.Stop,
	})
}
