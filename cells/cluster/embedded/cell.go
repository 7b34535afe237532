package embedded

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/internal/cell"
)

// Module is the cell of the store in a folder. It provides the [cluster.Backend].
func Module(dir string) fx.Option {
	return cell.Module("store",
		fx.Provide(func(lc fx.Lifecycle, log *slog.Logger) *Store {
			s := New(dir, log)
			lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
			return s
		}, fx.Private),
		fx.Provide((*Store).Backend),
	)
}
