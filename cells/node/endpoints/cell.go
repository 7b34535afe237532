package endpoints

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

type params struct {
	fx.In

	Lifecycle  fx.Lifecycle
	Backend    cluster.Backend
	Namespaces Namespaces
	Node       *node.Node
	Cache      *cache.Cache
	Log        *slog.Logger
}

// Module is the cell. It needs a [cluster.Backend] and a [node.Node], [Namespaces] and a [cache.Cache], which may be
// nil, and provides the [policy.RemoteSource].
func Module() fx.Option {
	return cell.Module("endpoints",
		fx.Provide(
			func(p params) *Follower {
				f := NewFollower(p.Backend.Endpoints, p.Namespaces, p.Cache, p.Node.Peers(), p.Log)
				p.Lifecycle.Append(fx.StopHook(f.task.Stop))
				return f
			},
			func(f *Follower) policy.RemoteSource { return f },
		),
		fx.Provide(func(b cluster.Backend, f *Follower, l endpointmanager.Lookup, log *slog.Logger) *publisher {
			return newPublisher(b.Endpoints, f, l, log)
		}, fx.Private),
		supervisor.Tasks(func(f *Follower) *task.Task { return f.task }),
		supervisor.Tasks(func(p *publisher) *task.Task { return p.task }),
		endpointmanager.Subscribe(func(p *publisher) *publisher { return p }),
	)
}
