package hostport

import (
	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/metrics"
)

func newCollector(s *Step) *metrics.Values {
	v := metrics.NewValues("porin_hostport_")
	ports := v.Gauge("ports", "Ports of the node that lead to pods; one of both families counts twice.", "protocol")
	v.Read = func(ch chan<- prometheus.Metric) {
		counts := s.Ports()
		for _, protocol := range []string{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP} {
			ports.Send(ch, float64(counts[protocol]), protocol)
		}
	}
	return v
}
