package multipool

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/cluster"
)

// meters are the cell's metrics.
type meters struct {
	claims *prometheus.CounterVec
	blocks *prometheus.GaugeVec
}

func newMeters() *meters {
	return &meters{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_multipool_claims_total", Help: "Claims of blocks that were tried, by result: claimed, exists or error.",
		}, []string{"result"}),
		blocks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "porin_multipool_blocks", Help: "Blocks of this node, by pool and state: owned, claiming, released, conflict or reclaiming.",
		}, []string{"pool", "state"}),
	}
}

func (m *meters) claim(err error) {
	result := "claimed"
	switch {
	case errors.Is(err, cluster.ErrExists):
		result = "exists"
	case err != nil:
		result = "error"
	}
	m.claims.WithLabelValues(result).Inc()
}

func (m *meters) publish(s Status) {
	m.blocks.Reset()
	for _, b := range s.Blocks {
		m.blocks.WithLabelValues(b.Pool, b.State).Inc()
	}
}
