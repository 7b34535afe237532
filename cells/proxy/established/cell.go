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
		fx.Provide(newStarted, func(d *Destroyer) policy.ConnectionCloser { return d }),
		server.Report(func(d *Destroyer) *Destroyer { return d }),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, cfg Config, log *slog.Logger) *Destroyer {
	d := New(cfg, log)
	lc.Append(fx.StartHook(d.start))
	return d
}
