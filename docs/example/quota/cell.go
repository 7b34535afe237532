package quota

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is the quota cell. It provides [*Step], for the ordered steps.
func Module(cfg Config) fx.Option {
	return cell.Module("quota",
		fx.Supply(cfg, fx.Private),
		fx.Provide(New),
		server.Provide(newRoutes),
		metrics.Collect(newCollector),
		doctor.Check(newChecker),
	)
}
