package established

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is a part of the cell proxy. It provides the [Destroyer] as [policy.ConnectionCloser].
func Module(cfg Config) fx.Option {
	return cell.Module("proxy",
		fx.Supply(cfg, fx.Private),
		fx.Provide(newStarted, func(c *Destroyer) policy.ConnectionCloser { return c }),
		server.Report(func(c *Destroyer) *Destroyer { return c }),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, cfg Config, log *slog.Logger) *Destroyer {
	c := New(cfg, log)
	lc.Append(fx.StartHook(c.start))
	return c
}
