package cni

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the cni cell. It needs [Examiner] and [Vitals] besides what endpointmanager, link and ipam provide.
func Module(cfg Config) fx.Option {
	return cell.Module("cni",
		fx.Supply(fx.Private, cfg, newChains(cfg.ConfDir)),
		server.Provide(newDesk),
		server.Watch(newHeartbeat),
	)
}
