package capacity

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the capacity cell. It provides [*Capacity], which samples from when the API serves until it stops.
func Module() fx.Option {
	return cell.Module("capacity",
		fx.Provide(build),
		server.Report(func(c *Capacity) *Capacity { return c }),
		server.Watch(func(c *Capacity) watcher { return watcher{c} }),
		doctor.Check(newChecker),
		metrics.Collect(newCollector),
	)
}

type params struct {
	fx.In

	Sources []Source `group:"capacity.sources"`
}

func build(p params) *Capacity { return New(p.Sources...) }

// watcher begins and ends the samples with the API. A sample is fast, so it is waited for.
type watcher struct{ capacity *Capacity }

var _ server.Watcher = watcher{}

func (w watcher) Serving()  { w.capacity.Start() }
func (w watcher) Stopping() { w.capacity.Stop() }
