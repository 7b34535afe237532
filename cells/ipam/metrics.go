package ipam

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/metrics"
)

// newCollector shows how full the pools are, and how often tracked connections could not be deleted.
func newCollector(a *allocator.Allocator, f *CleanFailures) *metrics.Values {
	v := metrics.NewValues("porin_ipam_")
	addresses := v.Gauge("addresses", "Addresses of this node by pool, prefix and use.", "pool", "prefix", "use")
	failures := v.Counter("conntrack_failures_total", "How often the tracked connections of released addresses could not be deleted.")
	v.Read = func(ch chan<- prometheus.Metric) {
		for _, pool := range a.Usage().Pools {
			for _, b := range pool.Blocks {
				for use, n := range map[string]int64{"used": b.Used, "quarantined": b.Resting, "free": b.Free} {
					addresses.Send(ch, float64(n), pool.Name, b.Prefix.String(), use)
				}
			}
		}
		failures.Send(ch, float64(f.Load()))
	}
	return v
}
