package server

import (
	"context"
	"log/slog"

	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/internal/cell"
)

// Module is the server cell. It provides [*Server] and runs it: list it after the cells that mount routes, and
// [LockSocket] before all cells.
func Module(cfg Config, info Info) fx.Option {
	return cell.Module("server",
		fx.Supply(cfg, info, fx.Private),
		fx.Provide(newRequests, fx.Private),
		metrics.Collect(func(r *requests) *requests { return r }),
		fx.Provide(NewSocketLock, newServer),
		fx.Invoke(run),
	)
}

func run(lc fx.Lifecycle, sd fx.Shutdowner, log *slog.Logger, s *Server) {
	failed := func(err error) {
		log.Error("api server ended, stopping the agent", "error", err)
		_ = sd.Shutdown(fx.ExitCode(1))
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error { return s.Start(ctx, failed) },
		OnStop:  s.Stop,
	})
}

// Parts are what other cells contribute.
type Parts struct {
	fx.In

	Routes    []Routes         `group:"server.routes"`
	Reporters []StatusReporter `group:"server.reporters"`
	Watchers  []Watcher        `group:"server.watchers"`
}

// Routes is a cell's part of the HTTP API. Mount is called once, before the socket is opened, with the root router:
// patterns are whole paths ("/v1/ipam").
type Routes interface{ Mount(r chi.Router) }

// Provide contributes the [Routes] that newRoutes builds: server.Provide(newRoutes).
func Provide(newRoutes any) fx.Option {
	return fx.Provide(fx.Annotate(newRoutes, fx.As(new(Routes)), fx.ResultTags(`group:"server.routes"`)))
}

// StatusReporter adds a cell's part to the answer of GET /v1/status. Report is called for each request, concurrently,
// and takes a second at the most.
type StatusReporter interface{ Report(status *v1.Status) }

// Report contributes the [StatusReporter] that newReporter builds: server.Report(newReporter).
func Report(newReporter any) fx.Option {
	return fx.Provide(fx.Annotate(newReporter, fx.As(new(StatusReporter)), fx.ResultTags(`group:"server.reporters"`)))
}

// Watcher is notified when the API begins and ends to serve. Both are called one watcher after the other and must
// return soon: Serving once, when the socket answers; Stopping once, before anything stops, so that a handler that
// streams can end.
type Watcher interface {
	Serving()
	Stopping()
}

// Watch contributes the [Watcher] that newWatcher builds: server.Watch(newWatcher).
func Watch(newWatcher any) fx.Option {
	return fx.Provide(fx.Annotate(newWatcher, fx.As(new(Watcher)), fx.ResultTags(`group:"server.watchers"`)))
}
