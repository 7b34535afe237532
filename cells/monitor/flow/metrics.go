package flow

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/metrics"
)

// newMetrics shows what the agent was told of. It sends every reason, also reasons that never occurred.
func newMetrics(c *Collector) *metrics.Values {
	v := metrics.NewValues("porin_monitor_")
	flows := v.Counter("flows_total", "Packets that have opened a connection or were dropped, as far as the agent was told of them.", "verdict", "reason")
	lost := v.Counter("flows_lost_total", "Packets that the agent was not told of, or had no time for.")
	v.Read = func(ch chan<- prometheus.Metric) {
		counts := c.Counts()
		flows.Send(ch, float64(counts.Verdicts[allowed]), allowed.String(), "")
		flows.Send(ch, float64(counts.Verdicts[audit]), audit.String(), "")
		for _, reason := range abi.DropReasons() {
			v := dropped
			if reason == abi.DropPolicyEgress || reason == abi.DropPolicyIngress || reason == abi.DropPolicyUnmanaged {
				v = denied
			}
			flows.Send(ch, float64(counts.Drops[reason]), v.String(), reason.String())
		}
		lost.Send(ch, float64(counts.Lost))
	}
	return v
}
