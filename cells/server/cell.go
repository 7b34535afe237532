package server

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

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
		fx.Provide(NewSocketLock, build),
		fx.Invoke(run),
	)
}

// params is what [New] asks for, as fx gathers it.
type params struct {
	fx.In

	Config    Config
	Info      Info
	Log       *slog.Logger
	Requests  *requests
	Lock      *SocketLock
	Routes    []Routes         `group:"server.routes"`
	Reporters []StatusReporter `group:"server.reporters"`
	Watchers  []Watcher        `group:"server.watchers"`
}

func build(p params) *Server {
	return newServer(p.Config, p.Info, p.Log, p.Requests, p.Lock, Parts{
		Routes: p.Routes, Reporters: p.Reporters, Watchers: p.Watchers,
	})
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
