package cni

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the cni cell. It needs [Examiner], [Capacity], [WaitingPods], which may be nil, and *delegate.Plugins
// besides what endpointmanager, link and ipam provide.
func Module(cfg Config) fx.Option {
	return cell.Module("cni",
		fx.Supply(fx.Private, cfg, &calls{}),
		server.Provide(newHandler),
		fx.Provide(newHeartbeat, fx.Private),
		server.Watch(func(w *heartbeatWriter) *heartbeatWriter { return w }),
		supervisor.Tasks(newHeartbeatTask),
		doctor.Check(newChecker),
	)
}

// Config says which files of the node the cell uses.
type Config struct {
	// StateDir is the agent's, which plugins know.
	StateDir string
	// ConfPath is the agent's file in the folder that the container runtime reads; the empty string when it writes none.
	ConfPath string
}
