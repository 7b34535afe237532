package blocks

import (
	"github.com/prometheus/client_golang/prometheus"
)

// meters count what becomes of blocks.
type meters struct {
	claims    *prometheus.CounterVec
	given     prometheus.Counter
	reclaimed prometheus.Counter
	owned     *prometheus.GaugeVec
}

func newMeters() *meters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "porin_blocks_" + name, Help: help})
	}
	return &meters{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_blocks_claims_total", Help: "Attempts to claim a block or a part of one: claimed, met (another node was there), failed.",
		}, []string{"result"}),
		given:     counter("given_back_total", "Blocks and halves of blocks that this node gave back."),
		reclaimed: counter("reclaimed_total", "Parts of blocks that this node took from nodes that are gone."),
		owned: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "porin_blocks_owned", Help: "Parts of blocks that this node owns, by pool.",
		}, []string{"pool"}),
	}
}

func (m *meters) claim(err error) {
	result := "claimed"
	if lost(err) {
		result = "met"
	} else if err != nil {
		result = "failed"
	}
	m.claims.WithLabelValues(result).Inc()
}

func (m *meters) owns(parts []Part) {
	m.owned.Reset()
	for _, p := range parts {
		m.owned.WithLabelValues(p.Pool).Inc()
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.claims, m.given, m.reclaimed, m.owned}
}

// Describe implements prometheus.Collector.
func (m *meters) Describe(ch chan<- *prometheus.Desc) {
	for _, part := range m.all() {
		part.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *meters) Collect(ch chan<- prometheus.Metric) {
	for _, part := range m.all() {
		part.Collect(ch)
	}
}
