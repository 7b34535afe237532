package doctor

import "github.com/prometheus/client_golang/prometheus"

// meters are the findings there are by kind, the repairs, and what examinations take.
type meters struct {
	known    *findings
	owners   map[string]string // of the kinds that are found
	findings *prometheus.Desc
	repairs  *prometheus.CounterVec
	duration prometheus.Histogram
}

func newMeters(known *findings, checkers []Checker) *meters {
	m := &meters{
		known: known, owners: map[string]string{},
		findings: prometheus.NewDesc("porin_doctor_findings", "Disagreements that are known, by kind.", []string{"kind", "owner"}, nil),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_doctor_repairs_total", Help: "Repairs of disagreements, by kind and outcome (repaired, failed).",
		}, []string{"kind", "outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "porin_doctor_examination_seconds", Help: "What an examination took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16), // 1 ms to 33 s
		}),
	}
	for _, checker := range checkers {
		for _, kind := range checker.Kinds() {
			m.owners[kind.Name] = checker.Owner()
			m.repairs.WithLabelValues(kind.Name, repaired)
			m.repairs.WithLabelValues(kind.Name, "failed")
		}
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *meters) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.findings
	m.repairs.Describe(ch)
	m.duration.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *meters) Collect(ch chan<- prometheus.Metric) {
	for kind, n := range m.known.count(m.owners) {
		ch <- prometheus.MustNewConstMetric(m.findings, prometheus.GaugeValue, float64(n), kind.name, kind.owner)
	}
	m.repairs.Collect(ch)
	m.duration.Collect(ch)
}
