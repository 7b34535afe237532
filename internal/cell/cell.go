// Package cell is what every module of the agent has in common: a name, and a logger that says it.
package cell

import (
	"log/slog"

	"go.uber.org/fx"
)

// Module is fx.Module with a logger that carries cell=name inside it.
func Module(name string, opts ...fx.Option) fx.Option {
	return fx.Module(name,
		fx.Decorate(func(log *slog.Logger) *slog.Logger { return log.With("cell", name) }),
		fx.Options(opts...),
	)
}
