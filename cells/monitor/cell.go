package monitor

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the monitor cell. It provides [Publisher].
func Module(cfg Config) fx.Option {
	self := func(m *Monitor) *Monitor { return m }
	return cell.Module("monitor",
		fx.Supply(cfg, fx.Private),
		fx.Provide(New, fx.Private),
		fx.Provide(func(m *Monitor) Publisher { return m }),
		endpointmanager.Observe(self),
		server.Provide(self),
		server.Watch(self),
	)
}
