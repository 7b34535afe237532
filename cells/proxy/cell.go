package proxy

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the proxy cell with the listener for HTTP and DNS. It needs a [Kernel] and a [policy.Learner], and provides
// the [*Proxy], also as [policy.Proxy], the [Step] for the ordered steps, and the [*accesslog.Log] of requests.
func Module(cfg Config) fx.Option {
	return module(cfg,
		fx.Provide(NewBuiltIn, func(b *BuiltIn) Listener { return b }, fx.Private),
		fx.Provide((*BuiltIn).Requests),
		metrics.Collect(func(b *BuiltIn) *meters { return b.meters }),
	)
}

// ModuleWith is the cell with another [Listener], which newListener returns: a constructor, which may take what the
// cell needs, and the [*accesslog.Log], to which it may add requests.
func ModuleWith(cfg Config, newListener any) fx.Option {
	return module(cfg, fx.Provide(newListener, fx.Private), fx.Provide(func() *accesslog.Log { return &accesslog.Log{} }))
}

func module(cfg Config, listener ...fx.Option) fx.Option {
	return cell.Module("proxy",
		fx.Supply(cfg, fx.Private),
		fx.Provide(newRedirect, fx.Private),
		fx.Options(listener...),
		fx.Provide(newStarted),
		fx.Provide(func(p *Proxy) (policy.Proxy, EndpointCloser) { return p, p }, NewStep),
		doctor.Check(newChecker),
		supervisor.Tasks(newFollowTask),
		supervisor.Tasks(newRemoveTask),
		supervisor.Health(newReporter),
		server.Report(newReporter),
		metrics.Collect(newCollector),
	)
}

func newRedirect(cfg Config, kernel Kernel, log *slog.Logger) *redirect.Redirect {
	return redirect.New(cfg.Config, kernel, log)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, r *redirect.Redirect, listener Listener, log *slog.Logger) *Proxy {
	p := New(r, listener, log)
	lc.Append(fx.StartStopHook(p.Start, p.Stop))
	return p
}
