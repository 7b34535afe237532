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
	"porin.dev/porin/internal/cell"
)

// Module is the ipam cell. It provides the [allocator.Allocator] and the [Step], and deletes tracked connections of released
// addresses from when the API serves until it stops.
func Module(cfg Config) fx.Option {
	return cell.Module("ipam",
		fx.Supply(fx.Private, cfg),
		fx.Provide(build, newStep),
		fx.Provide(newCleaner, func() *CleanFailures { return new(CleanFailures) }, NewConntrack, NewKernel, NewNodeAddresses, fx.Private),
		doctor.Check(newChecker),
		capacity.Provide(NewCapacitySource),
		server.Provide(newRoutes),
		server.Watch(func(c *Cleaner) watcher { return watcher{c} }),
		metrics.Collect(newCollector),
	)
}

// build has the allocator know what is reserved, and the node's own addresses before anybody starts who needs it.
func build(lc fx.Lifecycle, cfg Config, addresses NodeAddresses, log *slog.Logger) (*allocator.Allocator, error) {
	reservations := NewReservationFile(cfg.ReservationsPath)
	a, err := New(cfg, reservations)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(func() error { return reservations.Restore(a, log) }, reservations.Close))
	if cfg.Mode == ModePodCIDR {
		follower := NewFollower(addresses, a, log)
		lc.Append(fx.StartStopHook(follower.Start, follower.Stop))
	}
	return a, nil
}

// newCleaner is called for the watcher alone: without an API nobody would start it, and released addresses would wait for ever.
func newCleaner(a *allocator.Allocator, connections *Conntrack, failures *CleanFailures, log *slog.Logger) *Cleaner {
	return NewCleaner(a, connections, failures, log)
}

func newChecker(a *allocator.Allocator, k Kernel, l endpointmanager.Lookup, m endpointmanager.Manager) *Checker {
	return NewChecker(Parts{Allocator: a, Kernel: k, Endpoints: l, Repairer: m})
}

// watcher begins and ends the deletion of connections with the API.
type watcher struct{ cleaner *Cleaner }

var _ server.Watcher = watcher{}

func (w watcher) Serving()  { w.cleaner.Start() }
func (w watcher) Stopping() { w.cleaner.Stop() }
