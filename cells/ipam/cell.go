package ipam

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the ipam cell. It provides [Allocator], [Reserver], [MultiPool] and the [Step], and asks what is contributed by
// [Quiet] from when the API serves until it stops.
func Module(cfg Config) fx.Option {
	return cell.Module("ipam",
		fx.Supply(fx.Private, cfg),
		fx.Provide(build, newStep),
		fx.Provide(NewKernel, fx.Private),
		doctor.Check(newChecker),
		capacity.Provide(NewRoom),
		server.Provide(newRoutes),
		server.Watch(func(q *Asker) watcher { return watcher{q} }),
		metrics.Collect(newCollector),
	)
}

// params is what [NewNode] asks for, as fx gathers it.
type params struct {
	fx.In

	Config Config
	Quiet  []Namer `group:"ipam.namers"`
}

func build(p params) (Allocator, Reserver, MultiPool, *Asker, Books, error) {
	n, err := NewNode(p.Config, p.Quiet...)
	return n.Allocator, n.Reserver, n.MultiPool, n.Asker, n.Books, err
}

func newChecker(a Allocator, b Books, k Kernel, l endpointmanager.Lookup, m endpointmanager.Manager) *Checker {
	return NewChecker(Parts{Allocator: a, Books: b, Kernel: k, Endpoints: l, Repairer: m})
}

// watcher begins and ends the questions with the API. One that is under way is waited for, which takes as long as the
// kernel takes for a part of its answer.
type watcher struct{ asker *Asker }

var _ server.Watcher = watcher{}

func (w watcher) Serving()  { w.asker.Start() }
func (w watcher) Stopping() { w.asker.Stop() }
