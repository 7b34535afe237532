// Package task runs the goroutines that live as long as the agent.
package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.uber.org/fx"
)

// Go starts run when the application starts, cancels its context when the application stops, and waits for it to
// return. An error other than the context's own stops the whole application: a cell that lost its loop is not healthy.
func Go(lc fx.Lifecycle, sd fx.Shutdowner, log *slog.Logger, name string, run func(context.Context) error) {
	var (
		cancel context.CancelFunc
		done   = make(chan struct{})
	)
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			ctx, stop := context.WithCancel(context.Background())
			cancel = stop
			go func() {
				defer close(done)
				if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
					log.Error("task ended, stopping the agent", "task", name, "error", err)
					_ = sd.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			cancel()
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("wait for task %s: %w", name, ctx.Err())
			}
		},
	})
}
