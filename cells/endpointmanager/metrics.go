package endpointmanager

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
)

// instruments are the endpoints by state, the refused transitions, and the durations of what was done to endpoints.
type instruments struct {
	table    *Table
	states   *prometheus.Desc
	refused  *prometheus.Desc
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec

	admissions       *admission.Queues
	waiting, running *prometheus.Desc
	waits            waits
}

func newInstruments(table *Table, a *admission.Queues, w waits) *instruments {
	i := &instruments{
		table:   table,
		states:  prometheus.NewDesc("porin_endpoints", "Endpoints of this node by state.", []string{"state"}, nil),
		refused: prometheus.NewDesc("porin_endpoint_refused_transitions_total", "State transitions that the table forbids.", nil, nil),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "porin_endpoint_phase_duration_seconds",
			Help:    "What each phase of an ADD, DEL or restore took; phase total is all but what the plugin did before its call.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16), // 0.1 ms to 3.3 s
		}, []string{"operation", "phase"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_endpoint_phase_failures_total",
			Help: "Phases of an ADD, DEL or restore that failed.",
		}, []string{"operation", "phase"}),
		admissions: a,
		waits:      w,
		waiting:    prometheus.NewDesc("porin_admission_waiting", "Operations that wait for their turn.", []string{"lane"}, nil),
		running:    prometheus.NewDesc("porin_admission_running", "Operations that are at work.", []string{"lane"}, nil),
	}
	return i
}

// waits are how long operations waited for their turn, by lane.
type waits struct{ *prometheus.HistogramVec }

func newWaits() waits {
	w := waits{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "porin_admission_wait_seconds",
		Help:    "How long operations waited for their turn.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10), // 0.1 ms to 26 s
	}, []string{"lane"})}
	for l := range admission.Lanes {
		w.WithLabelValues(l.String()) // so that it is there from the beginning
	}
	return w
}

func (w waits) observe(l admission.Lane, d time.Duration) {
	w.WithLabelValues(l.String()).Observe(d.Seconds())
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

// Describe implements prometheus.Collector.
func (m *instruments) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.states
	ch <- m.refused
	ch <- m.waiting
	ch <- m.running
	m.waits.Describe(ch)
	m.duration.Describe(ch)
	m.failures.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *instruments) Collect(ch chan<- prometheus.Metric) {
	for state, n := range m.table.countByState() {
		ch <- prometheus.MustNewConstMetric(m.states, prometheus.GaugeValue, float64(n), string(state))
	}
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(m.table.refused.Load()))
	waiting, running := m.admissions.Counts()
	for l := range admission.Lanes {
		ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting[l]), l.String())
		ch <- prometheus.MustNewConstMetric(m.running, prometheus.GaugeValue, float64(running[l]), l.String())
	}
	m.waits.Collect(ch)
	m.duration.Collect(ch)
	m.failures.Collect(ch)
}

// heldEndpoints counts the held endpoints. It is a collector of its own: the manager needs the instruments, and has
// what it counts.
type heldEndpoints struct {
	m    *manager
	held *prometheus.Desc
}

func newHeldEndpoints(m *manager) *heldEndpoints {
	return &heldEndpoints{m, prometheus.NewDesc("porin_held_endpoints", "Attachments that the agent's start could not explain, and keeps as they are.", []string{"reason"}, nil)}
}

// Describe implements prometheus.Collector.
func (h *heldEndpoints) Describe(ch chan<- *prometheus.Desc) { ch <- h.held }

// Collect implements prometheus.Collector.
func (h *heldEndpoints) Collect(ch chan<- prometheus.Metric) {
	count := map[HoldReason]int{}
	for _, held := range h.m.Held() {
		count[held.Reason]++
	}
	for _, reason := range holdReasons { // zeros too
		ch <- prometheus.MustNewConstMetric(h.held, prometheus.GaugeValue, float64(count[reason]), string(reason))
	}
}
