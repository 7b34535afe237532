package capacity

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the last sample.
type collector struct {
	capacity                           *Capacity
	used, limit, available, exhausting *prometheus.Desc
}

func newCollector(c *Capacity) *collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("porin_resource_"+name, help, []string{"resource"}, nil)
	}
	return &collector{
		capacity:   c,
		used:       desc("used", "How much is in use, or in quarantine, of what an ADD needs."),
		limit:      desc("capacity", "How much there is of what an ADD needs; 0: it is not counted."),
		available:  desc("available", "1 while the next ADD would find what it needs, else 0."),
		exhausting: desc("exhausted_seconds", "When it runs out, while its use grows steadily."),
	}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.used, m.limit, m.available, m.exhausting} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range m.capacity.lastSample() {
		gauge := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, r.Name)
		}
		gauge(m.used, float64(r.Used+r.Quarantined))
		gauge(m.limit, float64(r.Capacity))
		gauge(m.available, map[bool]float64{true: 1}[r.Available])
		if r.ExhaustedIn > 0 {
			gauge(m.exhausting, r.ExhaustedIn.Seconds())
		}
	}
}
