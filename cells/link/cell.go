package link

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/internal/cell"
)

// Module is the link cell. It needs an [MTU], which may be nil, and provides the [Step], for the ordered steps, and
// what it does for others: [Inspector] and [Remover].
func Module() fx.Option {
	return cell.Module("link",
		fx.Provide(
			newStarted,
			func(s *Step) (Inspector, Remover) { return s, s },
		),
	)
}

type params struct {
	fx.In

	Lifecycle fx.Lifecycle
	MTU       MTU
	Log       *slog.Logger
}

// newStarted is [New] bound to the application's life.
func newStarted(p params) *Step {
	s := New(p.MTU, p.Log)
	p.Lifecycle.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s
}
