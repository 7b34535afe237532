package quota

import "github.com/prometheus/client_golang/prometheus"

// collector reads the counts when it is asked.
type collector struct {
	step      *Step
	endpoints *prometheus.Desc
}

func newCollector(s *Step) collector {
	return collector{s, prometheus.NewDesc("porin_quota_endpoints", "Endpoints on this node by Kubernetes namespace.", []string{"namespace"}, nil)}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.endpoints }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for namespace, n := range c.step.Used() {
		ch <- prometheus.MustNewConstMetric(c.endpoints, prometheus.GaugeValue, float64(n), namespace)
	}
}
