package supervisor

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/metrics"
)

// newMetrics shows how many cells are in which state. It sends every state.
func newMetrics(s *Supervisor) *metrics.Values {
	v := metrics.NewValues("porin_supervisor_")
	cells := v.Gauge("cells", "Cells of the agent by state: ok, degraded or failing.", "state")
	v.Read = func(ch chan<- prometheus.Metric) {
		count := map[State]int{}
		for _, c := range s.Conditions() {
			count[c.State]++
		}
		for _, state := range []State{OK, Degraded, Failing} {
			cells.Send(ch, float64(count[state]), string(state))
		}
	}
	return v
}
