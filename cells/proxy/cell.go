package proxy

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the proxy cell with the listener for HTTP and DNS. It needs a [Kernel] and a [policy.Learner], and provides
// the [*Proxy], also as [policy.Proxy], and the [Step] for the ordered steps.
func Module(cfg Config) fx.Option {
	return module(cfg,
		fx.Provide(NewBuiltIn, func(b *BuiltIn) Listener { return b }, fx.Private),
		metrics.Collect(func(b *BuiltIn) *meters { return b.meters }),
	)
}

// ModuleWith is the cell with another [Listener], which newListener returns: a constructor, which may take what the
// cell needs.
func ModuleWith(cfg Config, newListener any) fx.Option {
	return module(cfg, fx.Provide(newListener, fx.Private))
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
