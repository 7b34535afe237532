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

// Module is the ipam cell. It provides [Allocator], [Reserver], [MultiPool] and the [Step].
func Module(cfg Config) fx.Option {
	return cell.Module("ipam",
		fx.Supply(fx.Private, cfg),
		fx.Provide(build, NewStep),
		doctor.Check(func(a Allocator, l endpointmanager.Lookup, m endpointmanager.Manager) *Checker {
			return NewChecker(a, l, m)
		}),
		capacity.Provide(NewRoom),
		server.Provide(newRoutes),
		metrics.Collect(newCollector),
	)
}

// params is what [NewNode] asks for, as fx gathers it.
type params struct {
	fx.In

	Config Config
	Quiet  []Namer `group:"ipam.namers"`
}

func build(p params) (Allocator, Reserver, MultiPool, error) {
	n, err := NewNode(p.Config, p.Quiet...)
	return n.Allocator, n.Reserver, n.MultiPool, err
}
