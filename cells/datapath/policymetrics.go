package datapath

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/policy/policymap"
)

// policyUse tells how full the maps of the policy are, and what the node's filter has dropped since it was made.
func (x *Enforcer) policyUse() (use []policymap.Use, dropped hostfilter.Counters, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return nil, dropped, ErrNotStarted
	}
	if len(x.desired.Pods) > 0 { // else there is no filter
		dropped, err = x.filter.Counters()
	}
	return x.writer.Use(), dropped, err
}

// policyCollector shows it.
type policyCollector struct {
	enforcer                *Enforcer
	entries, capacity, drop *prometheus.Desc
}

func newPolicyCollector(x *Enforcer) *policyCollector {
	describe := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("porin_datapath_"+name, help, []string{label}, nil)
	}
	return &policyCollector{
		enforcer: x,
		entries:  describe("policy_entries", "Entries of the policy in a map.", "map"),
		capacity: describe("policy_capacity", "Entries of the policy that a map has room for: half of it, as there may be two copies.", "map"),
		drop: describe("filter_drops_total",
			"Packets that the node's table of nftables has dropped: input, of pods to the node that no policy allows; forward, of restricted pods by devices on which nothing decides.", "chain"),
	}
}

// Describe implements prometheus.Collector.
func (c *policyCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.entries, c.capacity, c.drop} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector. Of a datapath that is not started there is nothing to say.
func (c *policyCollector) Collect(ch chan<- prometheus.Metric) {
	use, dropped, err := c.enforcer.policyUse()
	if errors.Is(err, ErrNotStarted) {
		return
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.drop, err)
		return
	}
	for _, u := range use {
		ch <- prometheus.MustNewConstMetric(c.entries, prometheus.GaugeValue, float64(u.Entries), u.Map)
		ch <- prometheus.MustNewConstMetric(c.capacity, prometheus.GaugeValue, float64(u.Room), u.Map)
	}
	ch <- prometheus.MustNewConstMetric(c.drop, prometheus.CounterValue, float64(dropped.Input), "input")
	ch <- prometheus.MustNewConstMetric(c.drop, prometheus.CounterValue, float64(dropped.Forward), "forward")
}
