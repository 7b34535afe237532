package proxy

import (
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the proxy cell. It needs a [Kernel] and a [policy.Learner], and provides the [*Proxy], also as [policy.Proxy], and the [Step] for the ordered steps.
func Module(cfg Config) fx.Option {
	return cell.Module("proxy",
		fx.Supply(cfg, fx.Private),
		fx.Provide(newStarted),
		fx.Provide(func(p *Proxy) (policy.Proxy, Closer) { return p, p }, NewStep),
		doctor.Check(newChecker),
		supervisor.Tasks(newFollowTask),
		supervisor.Tasks(newRemoveTask),
		supervisor.Health(newReporter),
		server.Report(newReporter),
		metrics.Collect(newCollector),
	)
}

// newStarted is [New] bound to the application's life.
func newStarted(lc fx.Lifecycle, kernel Kernel, learner policy.Learner, cfg Config, log *slog.Logger) (*Proxy, error) {
	p, err := New(kernel, learner, cfg, log)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(p.Start, p.Stop))
	return p, nil
}
