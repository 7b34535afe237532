package policy

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/policy/engine"
)

// collector shows what is in force.
type collector struct {
	view                                                              *View
	names                                                             *Names
	policies, identities, revision, failures, applyTime, namesDropped *prometheus.Desc
}

func newCollector(v *View, n *Names) *collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("porin_policy_"+name, help, nil, nil)
	}
	return &collector{
		view:       v,
		names:      n,
		policies:   desc("policies", "Network policies."),
		identities: desc("identities", "Sets of addresses that the rules of no policy tell apart."),
		revision:   desc("revision", "Changes of policies, labels and addresses that were written to the datapath since the agent's start."),
		failures:   desc("apply_failures_total", "How often a change could not be written to the datapath."),
		applyTime:  desc("apply_seconds", "How long it took to write the last change to the datapath."),
		namesDropped: prometheus.NewDesc("porin_policy_name_addresses_dropped_total",
			"Addresses of names that were not learned, as no name may have them (protected) or an answer has too many (answer-limit), or that were dropped for newer ones (name-limit, endpoint-limit).",
			[]string{"reason"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.policies, c.identities, c.revision, c.failures, c.applyTime, c.namesDropped} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	applied := c.view.Applied()
	gauge(c.policies, float64(c.view.policyCount()))
	gauge(c.revision, float64(applied.Revision))
	gauge(c.applyTime, applied.Duration.Seconds())
	c.view.read(func(e *engine.Engine) { gauge(c.identities, float64(e.Classes())) })
	ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(applied.Failures))
	names := c.names.known.Counts()
	for reason, n := range map[string]uint64{
		"protected": names.Protected, "name-limit": names.NameLimit, "endpoint-limit": names.EndpointLimit, "answer-limit": names.LeftOut,
	} {
		ch <- prometheus.MustNewConstMetric(c.namesDropped, prometheus.CounterValue, float64(n), reason)
	}
}
