package cell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
)

// Quiet sends the log of fx to the debug log. [Run] returns the errors.
var Quiet = fx.WithLogger(func(log *slog.Logger) fxevent.Logger {
	logger := &fxevent.SlogLogger{Logger: log.With("cell", "fx")}
	logger.UseLogLevel(slog.LevelDebug)
	logger.UseErrorLevel(slog.LevelDebug)
	return logger
})

// ErrGaveUp is the reason of an end that a cell has caused.
var ErrGaveUp = errors.New("a cell gave up; the log says which and why")

// Run starts the cells, and stops them when ctx ends or one of them gives up: then it returns [ErrGaveUp]. It calls
// stopping before, with the reason. A start is not interrupted: a half start could not be stopped in order.
func Run(ctx context.Context, app *fx.App, stopping func(reason error)) error {
	startCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.StartTimeout())
	defer cancel()
	if err := app.Start(startCtx); err != nil {
		return fmt.Errorf("start: %w%s", err, remedy(err))
	}
	var reason, failed error
	select {
	case <-ctx.Done():
		reason = context.Cause(ctx)
	case stop := <-app.Wait(): // fx listens for signals, too
		if reason = fmt.Errorf("%s signal received", stop.Signal); stop.ExitCode != 0 {
			reason, failed = ErrGaveUp, ErrGaveUp
		}
	}
	stopping(reason)
	stopCtx, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	if err := app.Stop(stopCtx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return failed
}

// remedy is what to do on the node about the error, or "".
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return ": mount the file system writable, on the node and in the container"
	case errors.Is(err, syscall.ENOSPC):
		return ": free space on the node's file system"
	}
	return ""
}
