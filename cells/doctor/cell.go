package doctor

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the doctor cell. It provides [*Doctor], which examines from when the API serves until it stops.
func Module(cfg Config) fx.Option {
	return cell.Module("doctor",
		fx.Supply(cfg, fx.Private),
		fx.Provide(build),
		server.Provide(func(d *Doctor) *routes { return &routes{d} }),
		server.Watch(func(d *Doctor) *watcher { return &watcher{d} }),
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

// watcher begins and ends the examinations with the API. The stop hook waits for the last one.
type watcher struct{ doctor *Doctor }

func (w *watcher) Serving()  { w.doctor.Start() }
func (w *watcher) Stopping() { w.doctor.loop.cancel() }

var _ server.Watcher = (*watcher)(nil)
