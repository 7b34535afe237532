package ipam

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/ipam/allocator"
)

// collector shows how full the pools are, and how often tracked connections could not be deleted.
type collector struct {
	allocator           *allocator.Allocator
	cleanFailures       *CleanFailures
	addresses, failures *prometheus.Desc
}

func newCollector(a *allocator.Allocator, f *CleanFailures) collector {
	return collector{a, f,
		prometheus.NewDesc("porin_ipam_addresses", "Addresses of this node by pool, prefix and use.", []string{"pool", "prefix", "use"}, nil),
		prometheus.NewDesc("porin_ipam_conntrack_failures_total", "How often the tracked connections of released addresses could not be deleted.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.addresses
	ch <- c.failures
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, pool := range c.allocator.Usage().Pools {
		for _, b := range pool.Blocks {
			for use, n := range map[string]int64{"used": b.Used, "quarantined": b.Resting, "free": b.Free} {
				ch <- prometheus.MustNewConstMetric(c.addresses, prometheus.GaugeValue, float64(n), pool.Name, b.Prefix.String(), use)
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(c.cleanFailures.Load()))
}
