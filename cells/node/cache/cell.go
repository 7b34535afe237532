package cache

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the cell, with the file in a folder. It provides the [*Cache].
func Module(dir string) fx.Option {
	return cell.Module("cache",
		fx.Provide(func(lc fx.Lifecycle, log *slog.Logger) *Cache {
			c := New(dir, log)
			lc.Append(fx.StopHook(c.Stop))
			return c
		}),
		supervisor.Tasks(func(c *Cache) *task.Task { return c.task }),
	)
}
