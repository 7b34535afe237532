package policy

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/nodeaddr"
	"porin.dev/porin/internal/task"
)

// Module is the policy cell. It provides the [Step], for the ordered steps, [*Policies], [*View], [*Names] and a
// [Learner]. It needs [Connections], [Flows], an [Enforcer], a [Proxy] and a [RemoteSource], which may be nil.
func Module(cfg Config) fx.Option {
	return cell.Module("policy",
		fx.Supply(cfg, fx.Private),
		fx.Provide(nodeaddr.NewKernel, fx.Private),
		fx.Provide(newNames),
		fx.Provide(func(n *Names) Learner { return n }),
		fx.Provide(build),
		fx.Provide(NewStep),
		server.Provide(newRoutes),
		server.Report(newReporter),
		supervisor.Health(newReporter),
		endpointmanager.Describe(newReporter),
		doctor.Check(newChecker),
		supervisor.Tasks((*Queue).Task),
		supervisor.Tasks((*Queue).Layer7Task),
		supervisor.Tasks((*Names).Task),
		supervisor.Tasks(func(f *follower) *task.Task { return f.Task() }),
		metrics.Collect(newCollector),
	)
}

type params struct {
	fx.In

	Lifecycle fx.Lifecycle
	Config    Config
	Log       *slog.Logger
	Addresses nodeaddr.Source
	Names     *Names
	Enforcer  Enforcer
	Proxy     Proxy
	Remote    RemoteSource
}

type namesParams struct {
	fx.In

	Config      Config
	Log         *slog.Logger
	Connections Connections
}

func newNames(p namesParams) *Names { return NewNames(p.Config, p.Connections, p.Log) }

// HostKey is the key of the engine's endpoint with the node's own addresses. An attachment has another form.
const HostKey = "host"

// follower has the queue know the addresses of the node.
type follower struct{ *nodeaddr.Follower }

// newFollower leaves out loopback addresses, which never reach a pod.
func newFollower(source nodeaddr.Source, q *Queue, log *slog.Logger) *follower {
	relevant := func(addr netip.Addr) bool { return !addr.IsLoopback() }
	return &follower{nodeaddr.NewFollower("policy-follow-node-addresses", source, relevant, func(all map[netip.Addr]string) {
		addresses := slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
		addresses = slices.DeleteFunc(addresses, netip.Addr.IsLoopback)
		q.collect(setEndpoint(desiredEndpoint{Endpoint: model.Endpoint{Key: HostKey, Kind: model.Host, Addresses: addresses}}))
	}, log)}
}

// build appends hooks that make policies and node addresses known before the manager restores endpoints.
func build(p params) (*Queue, *View, *Policies, *follower) {
	q := NewQueue(engine.Config{HostPolicy: !p.Config.AllowHost, Audit: p.Config.Audit, AllowUnmanaged: p.Config.AllowUnmanaged}, p.Enforcer, p.Proxy, p.Names, p.Log)
	policies := New(p.Config, q, p.Log)
	f := newFollower(p.Addresses, q, p.Log)
	p.Lifecycle.Append(fx.StartStopHook(policies.Start, policies.Stop))
	p.Lifecycle.Append(fx.StartStopHook(f.Start, f.Stop))
	p.Lifecycle.Append(fx.StartStopHook(func(context.Context) error { q.Start(p.Remote); return nil }, q.Stop))
	return q, q.View(), policies, f
}
