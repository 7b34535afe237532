package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
)

// Collect contributes the prometheus.Collector that newCollector builds: metrics.Collect(newCollector). A program
// without the metrics cell never builds it.
func Collect(newCollector any) fx.Option {
	return fx.Provide(fx.Annotate(newCollector, fx.As(new(prometheus.Collector)), fx.ResultTags(`group:"metrics.collectors"`)))
}
