package ipam

import "github.com/prometheus/client_golang/prometheus"

// collector shows how full the pools are.
type collector struct {
	allocator Allocator
	addresses *prometheus.Desc
}

func newCollector(a Allocator) collector {
	return collector{a, prometheus.NewDesc("porin_ipam_addresses",
		"Addresses of this node by pool, prefix and use.", []string{"pool", "prefix", "use"}, nil)}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.addresses }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, pool := range c.allocator.Usage().Pools {
		for _, r := range pool.Ranges {
			for use, n := range map[string]int64{"used": r.Used, "quarantined": r.Quarantined, "free": r.Free} {
				ch <- prometheus.MustNewConstMetric(c.addresses, prometheus.GaugeValue, float64(n), pool.Name, r.Prefix.String(), use)
			}
		}
	}
}
