package store

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the store cell. It provides a [Store], which is open from start to stop.
func Module(cfg Config) fx.Option {
	return cell.Module("store",
		fx.Supply(fx.Private, cfg),
		fx.Provide(newStarted, fx.Private),
		fx.Provide(func(s *service) Store { return s }),
		fx.Provide(newReporter, fx.Private),
		server.Report(func(r *reporter) *reporter { return r }),
		supervisor.Health(func(r *reporter) *reporter { return r }),
		doctor.Check(func(s *service) *checker { return &checker{s} }),
		metrics.Collect(func(s *service) *meters { return s.meters }),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, cfg Config, log *slog.Logger) (*service, error) {
	s, err := newService(cfg, log)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s, nil
}
