package doctor

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/metrics"
)

// meters are the findings there are by kind, the repairs, and what examinations take.
type meters struct {
	*metrics.Values
	repairs  *prometheus.CounterVec
	duration prometheus.Histogram
}

func newMeters(known *findings, checkers []Checker) *meters {
	m := &meters{
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_doctor_repairs_total", Help: "Repairs of disagreements, by kind and outcome (repaired, failed).",
		}, []string{"kind", "outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "porin_doctor_examination_seconds", Help: "What an examination took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16), // 1 ms to 33 s
		}),
	}
	owners := map[string]string{} // of the kinds that are found
	for _, checker := range checkers {
		for _, kind := range checker.Kinds() {
			owners[kind.Name] = checker.Owner()
			m.repairs.WithLabelValues(kind.Name, repaired)
			m.repairs.WithLabelValues(kind.Name, "failed")
		}
	}
	m.Values = metrics.NewValues("porin_doctor_", m.repairs, m.duration)
	found := m.Gauge("findings", "Disagreements that are known, by kind.", "kind", "owner")
	m.Read = func(ch chan<- prometheus.Metric) {
		for kind, n := range known.count(owners) {
			found.Send(ch, float64(n), kind.kind, kind.owner)
		}
	}
	return m
}
