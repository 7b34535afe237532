package main

import (
	"go.uber.org/fx"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/cells/proxy/mapkernel"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/restored"
)

// Cells is the proxy: the module that the agent has within, with control by the agent in the place of its policies, and
// the maps that the agent has pinned.
func Cells(cfg Config) fx.Option {
	return fx.Options(
		metrics.Module(cfg.Metrics),
		proxy.Module(proxy.Config{Config: redirect.Config{BPFRoot: cfg.BPFRoot}, DrainTimeout: cfg.Control.DrainTimeout, DeniedNames: cfg.Control.DeniedNames}),
		control.ServerModule(cfg.Control),
		supervisor.Module(cfg.Supervisor),
		fx.Provide(
			func(lc fx.Lifecycle) *datapath.PinnedMaps {
				m := datapath.NewPinnedMaps(cfg.BPFRoot)
				lc.Append(fx.StopHook(m.Close))
				return m
			},
			func(m *datapath.PinnedMaps) (proxy.Kernel, control.Maps) { return mapkernel.New(m.Redirects(), m), m },
			control.NewLearner,
			func(l *control.Learner) policy.Learner { return l },
			restored.Opened,
		),
	)
}
