package node

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the node cell. It needs [Blocks], [Health], an [AddressSource], a [DirectPath], [Kubernetes], a
// [cluster.Backend] and a [cache.Cache], which may be its zero value, and provides [*Node].
func Module(cfg Config) fx.Option {
	return cell.Module("node",
		fx.Supply(fx.Private, cfg),
		fx.Provide(build),
		supervisor.Tasks(func(n *Node) *task.Task { return n.observer.task }),
		supervisor.Tasks(func(n *Node) *task.Task { return n.peers.task }),
		supervisor.Tasks(func(n *Node) *task.Task { return n.router.task }),
		supervisor.Tasks(func(n *Node) *task.Task { return n.addresses.task }),
		supervisor.Tasks(func(n *Node) *task.Task { return n.rules }),
		supervisor.Tasks(func(n *Node) *task.Task { return n.publisherTask() }),
		supervisor.Health(newReporter),
		server.Report(newReporter),
		server.Provide(newReporter),
		doctor.Check(newChecker),
		metrics.Collect(newCollector),
	)
}

type params struct {
	fx.In

	Lifecycle  fx.Lifecycle
	Config     Config
	Blocks     Blocks
	Health     Health
	Addresses  AddressSource
	DirectPath DirectPath
	Backend    cluster.Backend
	Cache      *cache.Cache
	Kubernetes Kubernetes
	Log        *slog.Logger
}

func build(p params) (*Node, error) {
	from := Sources{Blocks: p.Blocks, Health: p.Health, Addresses: p.Addresses, DirectPath: p.DirectPath, Cache: p.Cache, Kubernetes: p.Kubernetes}
	if p.Backend.Networks != nil {
		from.Backend = &p.Backend
	}
	n, err := New(p.Config, from, p.Log)
	if err == nil {
		p.Lifecycle.Append(fx.StartStopHook(n.Start, n.stop))
	}
	return n, err
}
