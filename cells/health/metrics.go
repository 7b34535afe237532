package health

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/metrics"
)

// instruments count probes by path, and never by node: a cluster may have thousands.
type instruments struct {
	probes  *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

func newInstruments() *instruments {
	buckets := []float64{}
	for _, bound := range probe.Bounds() {
		buckets = append(buckets, bound.Seconds())
	}
	path := []string{"target", "protocol", "family"}
	return &instruments{
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_health_probes_total", Help: "Probes of other nodes, by what was probed, how, and whether it answered (ok, timeout, refused, error).",
		}, append(path, "result")),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "porin_health_probe_seconds", Help: "How long the answers of other nodes took.", Buckets: buckets,
		}, path),
	}
}

func (m *instruments) observe(path probe.Path, latency time.Duration, err error) {
	labels := []string{string(path.Target), string(path.Protocol), path.Family.String()}
	if err == nil {
		m.latency.WithLabelValues(labels...).Observe(latency.Seconds())
	}
	m.probes.WithLabelValues(append(labels, resultOf(err))...).Inc()
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, probe.ErrTimeout):
		return "timeout"
	case errors.Is(err, probe.ErrRefused):
		return "refused"
	}
	return "error"
}

// newCollector shows the instruments, and how the nodes and the node's own endpoint are now.
func newCollector(m *instruments, p *probe.Prober, k *Keeper) *metrics.Values {
	v := metrics.NewValues("porin_health_", m.probes, m.latency)
	nodes := v.Gauge("nodes", "Other nodes, by their status (ok, failing, unknown) as this node sees it.", "status")
	endpoint := v.Gauge("endpoint_ok", "1 while the node's own health endpoint passed its last check, else 0.")
	recreated := v.Counter("endpoint_recreations_total", "How often the node's own health endpoint failed and was replaced.")
	v.Read = func(ch chan<- prometheus.Metric) {
		for status, n := range p.Counts() {
			nodes.Send(ch, float64(n), string(status))
		}
		status := k.Status()
		endpoint.SendBool(ch, k.cfg.Endpoint && !status.Checked.IsZero() && status.Err == nil)
		recreated.Send(ch, float64(status.Recreated))
	}
	return v
}
