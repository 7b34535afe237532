package ipam

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/nodeaddr"
	"porin.dev/porin/internal/task"
)

// Module is the ipam cell. It provides the [allocator.Allocator] and the [Step], needs an [allocator.Refiller],
// which may be nil, and deletes tracked connections of released addresses from when everything is restored.
func Module(cfg Config) fx.Option {
	return cell.Module("ipam",
		fx.Supply(fx.Private, cfg),
		fx.Provide(build, newSource, newStep),
		fx.Provide(newCleaner, func() *CleanFailures { return new(CleanFailures) }, NewConntrack, NewKernel, nodeaddr.NewKernel, fx.Private),
		doctor.Check(newChecker),
		capacity.Provide(NewCapacitySource),
		server.Provide(newRoutes),
		supervisor.Tasks((*Cleaner).Task),
		supervisor.Tasks(followerTask),
		metrics.Collect(newCollector),
	)
}

// build returns no follower outside pod-cidr. It has the allocator know what is reserved, and the node's own addresses
// before anybody starts who needs it.
func build(lc fx.Lifecycle, cfg Config, addresses nodeaddr.Source, log *slog.Logger) (a *allocator.Allocator, follower *nodeaddr.Follower, err error) {
	reservations := NewReservationFile(cfg.ReservationsPath)
	if a, err = New(cfg, reservations); err != nil {
		return nil, nil, err
	}
	lc.Append(fx.StartStopHook(func() error { return reservations.Restore(a, log) }, reservations.Close))
	if cfg.Mode == ModePodCIDR {
		follower = NewFollower(addresses, a, log)
		lc.Append(fx.StartStopHook(follower.Start, follower.Stop))
	}
	return a, follower, nil
}

// followerTask is nil where the node's addresses are not followed.
func followerTask(f *nodeaddr.Follower) *task.Task {
	if f == nil {
		return nil
	}
	return f.Task()
}

// newCleaner is called for the supervisor alone: without one it would not start, and released addresses would wait for
// ever.
func newCleaner(a *allocator.Allocator, connections *Conntrack, failures *CleanFailures, log *slog.Logger) *Cleaner {
	return NewCleaner(a, connections, failures, log)
}

func newChecker(a *allocator.Allocator, k Kernel, l endpointmanager.Lookup, m endpointmanager.Manager) *Checker {
	return NewChecker(Parts{Allocator: a, Kernel: k, Endpoints: l, Repairer: m})
}
