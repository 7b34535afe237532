package control

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/restored"
)

// ClientModule is the agent's side of porin-proxy. It provides a [policy.Proxy], a [proxy.EndpointCloser], the
// [proxy.Step] and the [*accesslog.Log]; unlike [proxy.Module], no [*proxy.Proxy]. It needs [*policy.Names], a
// [proxy.Kernel] and a [*restored.Barrier].
func ClientModule(cfg ClientConfig) fx.Option {
	return cell.Module("proxy",
		fx.Supply(cfg, fx.Private),
		fx.Provide(startClient, fx.Private),
		fx.Provide(func(c *Client) (policy.Proxy, proxy.EndpointCloser) { return c, c }, (*Client).Requests, proxy.NewStep),
		doctor.Check(newChecker),
		supervisor.Tasks((*Client).Task),
		supervisor.Health(newReporter),
		server.Report(newReporter),
		metrics.Collect(newCollector),
	)
}

type clientParams struct {
	fx.In

	Lifecycle fx.Lifecycle
	Config    ClientConfig
	Names     *policy.Names
	Kernel    proxy.Kernel // the proxy opens its maps when the agent connects
	Restored  *restored.Barrier
	Log       *slog.Logger
}

// startClient is [NewClient] bound to the application's life. It connects before endpoints are restored: the first
// write of policies needs the proxy.
func startClient(p clientParams) *Client {
	c := NewClient(p.Config, p.Names, p.Log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.Lifecycle.Append(fx.Hook{
		OnStart: func(context.Context) error {
			c.task.Start(nil)
			go func() {
				defer close(done)
				if p.Restored.Wait(ctx) == nil {
					c.Complete()
				}
			}()
			return nil
		},
		OnStop: func(stopping context.Context) error {
			cancel()
			<-done
			if err := c.task.Stop(stopping); err != nil {
				return err
			}
			return c.Close()
		},
	})
	return c
}

// ServerModule is the control of porin-proxy, and provides the [*Server]. It needs a [*proxy.Proxy], [Maps], a
// [*Learner] and the proxy's [*accesslog.Log].
func ServerModule(cfg ServerConfig) fx.Option {
	return cell.Module("control",
		fx.Supply(cfg, fx.Private),
		fx.Provide(startServer),
		fx.Invoke(func(*Server) {}),
	)
}

func startServer(lc fx.Lifecycle, sd fx.Shutdowner, p ServerParams) (*Server, error) {
	s, err := NewServer(p, func() { _ = sd.Shutdown() })
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(s.Start, s.Stop))
	return s, nil
}
