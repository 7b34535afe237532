package flow

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/bpf/abi"
)

// metricsCollector shows what was told.
type metricsCollector struct {
	collector   *Collector
	flows, lost *prometheus.Desc
}

func newMetrics(c *Collector) *metricsCollector {
	return &metricsCollector{
		collector: c,
		flows: prometheus.NewDesc("porin_monitor_flows_total", "Packets that have opened a connection or were dropped, as far as the agent was told of them.",
			[]string{"verdict", "reason"}, nil),
		lost: prometheus.NewDesc("porin_monitor_flows_lost_total", "Packets that the agent was not told of, or had no time for.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metricsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.flows
	ch <- m.lost
}

// Collect implements prometheus.Collector. It sends every reason, also reasons that never occurred.
func (m *metricsCollector) Collect(ch chan<- prometheus.Metric) {
	counts := m.collector.Counts()
	send := func(v verdict, reason string, n uint64) {
		ch <- prometheus.MustNewConstMetric(m.flows, prometheus.CounterValue, float64(n), v.String(), reason)
	}
	send(allowed, "", counts.Verdicts[allowed])
	send(audit, "", counts.Verdicts[audit])
	for _, reason := range abi.DropReasons() {
		v := dropped
		if reason == abi.DropPolicyEgress || reason == abi.DropPolicyIngress || reason == abi.DropPolicyUnmanaged {
			v = denied
		}
		send(v, reason.String(), counts.Drops[reason])
	}
	ch <- prometheus.MustNewConstMetric(m.lost, prometheus.CounterValue, float64(counts.Lost))
}
