package health

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/health/probe"
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

// collector shows the instruments, and how the nodes and the node's own endpoint are now.
type collector struct {
	*instruments
	prober                              *probe.Prober
	keeper                              *Keeper
	nodes, endpoint, recreated, changed *prometheus.Desc
}

func newCollector(m *instruments, p *probe.Prober, k *Keeper) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("porin_health_"+name, help, labels, nil)
	}
	return &collector{
		instruments: m, prober: p, keeper: k,
		nodes:     desc("nodes", "Other nodes, by their status (ok, failing, unknown) as this node sees it.", "status"),
		endpoint:  desc("endpoint_ok", "1 while the node's own health endpoint passed its last check, else 0."),
		recreated: desc("endpoint_recreations_total", "How often the node's own health endpoint failed and was replaced."),
		changed:   desc("endpoint_new_addresses_total", "How often the node's own health endpoint could not have the addresses of before."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	c.probes.Describe(ch)
	c.latency.Describe(ch)
	for _, desc := range []*prometheus.Desc{c.nodes, c.endpoint, c.recreated, c.changed} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.probes.Collect(ch)
	c.latency.Collect(ch)
	for status, n := range c.prober.Counts() {
		ch <- prometheus.MustNewConstMetric(c.nodes, prometheus.GaugeValue, float64(n), string(status))
	}
	status := c.keeper.Status()
	ok := 0.0
	if c.keeper.cfg.Endpoint && !status.Checked.IsZero() && status.Err == nil {
		ok = 1
	}
	ch <- prometheus.MustNewConstMetric(c.endpoint, prometheus.GaugeValue, ok)
	ch <- prometheus.MustNewConstMetric(c.recreated, prometheus.CounterValue, float64(status.Recreated))
	ch <- prometheus.MustNewConstMetric(c.changed, prometheus.CounterValue, float64(status.NewAddress))
}
