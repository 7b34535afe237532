package hostport

import (
	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
)

// collector counts ports when it is asked.
type collector struct {
	step  *Step
	ports *prometheus.Desc
}

func newCollector(s *Step) *collector {
	return &collector{s, prometheus.NewDesc("porin_hostport_ports", "Ports of the node that lead to pods; one of both families counts twice.", []string{"protocol"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.ports }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counts := c.step.Ports()
	for _, protocol := range []string{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP} {
		ch <- prometheus.MustNewConstMetric(c.ports, prometheus.GaugeValue, float64(counts[protocol]), protocol)
	}
}
