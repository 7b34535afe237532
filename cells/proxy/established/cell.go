package established

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// Module is a part of the cell proxy. It provides the [Closer] as [policy.OpenConnections].
func Module(cfg Config) fx.Option {
	return cell.Module("proxy",
		fx.Supply(cfg, fx.Private),
		fx.Provide(newStarted, func(c *Closer) policy.OpenConnections { return c }),
		server.Report(func(c *Closer) *Closer { return c }),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, cfg Config, log *slog.Logger) *Closer {
	c := New(cfg, log)
	lc.Append(fx.StartHook(c.start))
	return c
}
