package endpointmanager

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/metrics"
)

// instruments are the endpoints by state, the refused transitions, and the durations of what was done to endpoints.
type instruments struct {
	*metrics.Values
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newInstruments(table *Table, a *admission.Queues) *instruments {
	i := &instruments{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "porin_endpoint_phase_duration_seconds",
			Help:    "What each phase of an ADD, DEL or restore took; phase total is all but what the plugin did before its call.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16), // 0.1 ms to 3.3 s
		}, []string{"operation", "phase"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_endpoint_phase_failures_total",
			Help: "Phases of an ADD, DEL or restore that failed.",
		}, []string{"operation", "phase"}),
	}
	i.Values = metrics.NewValues("porin_", i.duration, i.failures)
	states := i.Gauge("endpoints", "Endpoints of this node by state.", "state")
	refused := i.Counter("endpoint_refused_transitions_total", "State transitions that the table forbids.")
	waiting := i.Gauge("admission_waiting", "Operations that wait for their turn.", "lane")
	running := i.Gauge("admission_running", "Operations that are at work.", "lane")
	i.Read = func(ch chan<- prometheus.Metric) {
		for state, n := range table.countByState() {
			states.Send(ch, float64(n), string(state))
		}
		refused.Send(ch, float64(table.refused.Load()))
		waits, runs := a.Counts()
		for l := range admission.Lanes {
			waiting.Send(ch, float64(waits[l]), l.String())
			running.Send(ch, float64(runs[l]), l.String())
		}
	}
	return i
}

// Observe implements [endpoint.Observer].
func (m *instruments) Observe(trace endpoint.Trace) {
	op := string(trace.Operation)
	m.duration.WithLabelValues(op, "total").Observe(trace.Duration.Seconds())
	for _, phase := range trace.Phases {
		m.duration.WithLabelValues(op, phase.Name).Observe(phase.Duration.Seconds())
		if phase.Err != nil {
			m.failures.WithLabelValues(op, phase.Name).Inc()
		}
	}
}

// newHeldEndpoints counts the held endpoints. It is a collector of its own: the manager needs the instruments, and has
// what it counts.
func newHeldEndpoints(m *manager) *metrics.Values {
	v := metrics.NewValues("porin_")
	held := v.Gauge("held_endpoints", "Attachments that the agent's start could not explain, and keeps as they are.", "reason")
	v.Read = func(ch chan<- prometheus.Metric) {
		count := map[HoldReason]int{}
		for _, h := range m.Held() {
			count[h.Reason]++
		}
		for _, reason := range holdReasons { // zeros too
			held.Send(ch, float64(count[reason]), string(reason))
		}
	}
	return v
}
