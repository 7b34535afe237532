package capacity

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/metrics"
)

// newCollector shows the last sample.
func newCollector(c *Capacity) *metrics.Values {
	v := metrics.NewValues("porin_resource_")
	used := v.Gauge("used", "How much is in use, or in quarantine, of what an ADD needs.", "resource")
	limit := v.Gauge("capacity", "How much there is of what an ADD needs; 0: it is not counted.", "resource")
	available := v.Gauge("available", "1 while the next ADD would find what it needs, else 0.", "resource")
	v.Read = func(ch chan<- prometheus.Metric) {
		for _, r := range c.lastSample() {
			used.Send(ch, float64(r.Used+r.Quarantined), r.Name)
			limit.Send(ch, float64(r.Capacity), r.Name)
			available.SendBool(ch, r.Available, r.Name)
		}
	}
	return v
}
