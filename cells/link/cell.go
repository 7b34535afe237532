package link

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/internal/cell"
)

// Module is the link cell. It provides the [Step], for the ordered steps, and what it does for others: [Opener],
// [Inspector] and [Remover].
func Module() fx.Option {
	return cell.Module("link",
		fx.Provide(
			newStarted,
			func(s *Step) (Opener, Inspector, Remover) { return s, s, s },
		),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, log *slog.Logger) *Step {
	s := New(log)
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s
}
