package health

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/health/probe/network"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the health cell. It provides [*LocalEndpoint], [*Keeper] and [*probe.Prober], and needs [probe.Peers],
// which may be nil.
func Module(cfg Config) fx.Option {
	return cell.Module("health",
		fx.Supply(cfg, fx.Private),
		fx.Provide(NewLocalEndpoint),
		fx.Provide(newInstruments, fx.Private),
		fx.Provide(newTransport, fx.Private),
		fx.Provide(buildKeeper, buildProber),
		endpointmanager.Subscribe(func(l *LocalEndpoint) *LocalEndpoint { return l }),
		supervisor.Tasks((*Keeper).Task),
		supervisor.Tasks(newProbeTask),
		server.Provide(newRoutes),
		metrics.Collect(newCollector),
		fx.Invoke(func(*Keeper) {}),
	)
}

func newTransport() probe.Transport { return network.New() }

type keeperParams struct {
	fx.In

	Lifecycle fx.Lifecycle
	Config    Config
	Log       *slog.Logger
	Service   endpointmanager.Service // which has restored what there was when the keeper starts
	Lookup    endpointmanager.Lookup
	Local     *LocalEndpoint
	Transport probe.Transport
}

func buildKeeper(p keeperParams) *Keeper {
	k := NewKeeper(p.Config, p.Log, Parts{
		Manager: p.Service, Lookup: p.Lookup, Local: p.Local, Transport: p.Transport,
	})
	p.Lifecycle.Append(fx.StopHook(k.Stop))
	return k
}

type proberParams struct {
	fx.In

	Config      Config
	Transport   probe.Transport
	Instruments *instruments
	Peers       probe.Peers
}

func buildProber(p proberParams) *probe.Prober {
	if p.Peers == nil {
		p.Peers = noPeers{}
	}
	cfg := probe.DefaultConfig()
	cfg.Interval = p.Config.ProbeInterval
	return probe.New(cfg, p.Peers, p.Transport, p.Instruments.observe)
}

// noPeers is a cluster of one node.
type noPeers struct{}

func (noPeers) Peers() []cluster.NodeNetwork { return nil }
func (noPeers) Changed() <-chan struct{}     { return nil }

func newProbeTask(p *probe.Prober, log *slog.Logger) *task.Task {
	return task.Forever(log, "health-probe", func(ctx context.Context) error { return p.Run(ctx) })
}
