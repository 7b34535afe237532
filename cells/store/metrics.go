package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/internal/fault"
)

// meters count what goes through the store.
type meters struct {
	operations *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	watches    prometheus.Gauge
	resyncs    prometheus.Counter
}

func newMeters() *meters {
	return &meters{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_store_operations_total", Help: "Operations on the cluster's store, by kind and result (ok, or the code of the error).",
		}, []string{"operation", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "porin_store_operation_seconds", Help: "What an operation on the cluster's store took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13), // 0.1 ms to 6 s
		}, []string{"operation"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{Name: "porin_store_watches", Help: "Watches that are open."}),
		resyncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "porin_store_resyncs_total", Help: "Times a watch began with the whole list.",
		}),
	}
}

func (m *meters) operation(name string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = string(fault.KindOf(err))
	}
	m.operations.WithLabelValues(name, result).Inc()
	m.duration.WithLabelValues(name).Observe(took.Seconds())
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.operations, m.duration, m.watches, m.resyncs}
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
