package policy

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy/engine"
)

// newCollector shows what is in force.
func newCollector(view *View, n *Names) *metrics.Values {
	v := metrics.NewValues("porin_policy_")
	policies := v.Gauge("policies", "Network policies.")
	identities := v.Gauge("identities", "Sets of addresses that the rules of no policy tell apart.")
	revision := v.Gauge("revision", "Changes of policies, labels and addresses that were written to the datapath since the agent's start.")
	failures := v.Counter("apply_failures_total", "How often a change could not be written to the datapath.")
	applyTime := v.Gauge("apply_seconds", "How long it took to write the last change to the datapath.")
	namesDropped := v.Counter("name_addresses_dropped_total",
		"Addresses of names that were not learned, as no name may have them (protected) or an answer has too many (answer-limit), or that were dropped for newer ones (name-limit, endpoint-limit).",
		"reason")
	v.Read = func(ch chan<- prometheus.Metric) {
		applied := view.Applied()
		policies.Send(ch, float64(view.policyCount()))
		revision.Send(ch, float64(applied.Revision))
		applyTime.Send(ch, applied.Duration.Seconds())
		view.read(func(e *engine.Engine) { identities.Send(ch, float64(e.Classes())) })
		failures.Send(ch, float64(applied.Failures))
		names := n.known.Counts()
		for reason, n := range map[string]uint64{
			"protected": names.Protected, "name-limit": names.NameLimit, "endpoint-limit": names.EndpointLimit, "answer-limit": names.LeftOut,
		} {
			namesDropped.Send(ch, float64(n), reason)
		}
	}
	return v
}
