package main

import (
	"log/slog"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cni"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/monitor/flow"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/version"
)

// Bounds of all start hooks and of all stop hooks together. A start restores every endpoint of the node.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Cells is the agent. Start hooks run in the order in which cells need each other: first of all the socket is claimed,
// so that a second agent touches nothing, and last of all it serves.
func Cells(cfg Config) fx.Option {
	return fx.Options(
		server.LockSocket(),
		endpointmanager.Module(cfg.EndpointManager),
		ipam.Module(cfg.ipam()),
		link.Module(),
		multiPool(cfg),
		policy.Module(cfg.policy()),
		datapath.Module(cfg.datapath()),
		doctor.Module(cfg.Doctor),
		capacity.Module(),
		monitor.Module(cfg.Monitor),
		flow.Module(cfg.Flow),
		metrics.Module(cfg.Metrics),
		cni.Module(cni.Config{StateDir: cfg.EndpointManager.StateDir, ConfDir: cfg.cniConfDir()}),
		supervisor.Module(cfg.Supervisor),
		server.Module(cfg.Server, server.Info{Version: version.Of(), Node: cfg.NodeName}),
		cniConfModule(cfg),
		fx.Provide(
			func() *delegate.Plugins { return delegate.New(cfg.Delegate) },
			func(d *doctor.Doctor) cni.Examiner { return d },
			func(c *capacity.Capacity) cni.Capacity { return c },
			steps,
		),
	)
}

// multiPool is what the mode of that name needs besides: the cluster's store, and the node's blocks of its pools.
func multiPool(cfg Config) fx.Option {
	if cfg.IPAM.Mode != ipam.ModeMultiPool {
		return server.Provide(func() noPools { return noPools{cfg.IPAM.Mode} })
	}
	return fx.Options(
		store.Module(cfg.Store),
		multipool.Module(cfg.multiPool()),
		fx.Provide(cluster.OnStore),
	)
}

// steps is the order in which an endpoint comes up; it goes down in the reverse order.
func steps(ipam *ipam.Step, plugins *delegate.Plugins, link *link.Step, policy *policy.Step, datapath *datapath.Step) endpoint.Steps {
	return endpoint.Steps{ipam.WithPlugins(plugins, link), link, policy, datapath}
}

// quiet sends the log of fx to the debug log.
var quiet = fx.WithLogger(func(log *slog.Logger) fxevent.Logger {
	logger := &fxevent.SlogLogger{Logger: log.With("cell", "fx")}
	logger.UseLogLevel(slog.LevelDebug)
	logger.UseErrorLevel(slog.LevelDebug) // run returns the error, once
	return logger
})
