package datapath

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/metrics"
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

// newPolicyCollector shows it. Of a datapath that is not started there is nothing to show.
func newPolicyCollector(x *Enforcer) *metrics.Values {
	v := metrics.NewValues("porin_datapath_")
	entries := v.Gauge("policy_entries", "Entries of the policy in a map.", "map")
	capacity := v.Gauge("policy_capacity", "Entries of the policy that a map has room for: half of it, as there may be two copies.", "map")
	drops := v.Counter("filter_drops_total",
		"Packets that the node's table of nftables has dropped: input, of pods to the node that no policy allows; forward, of restricted pods by devices on which nothing decides.", "chain")
	v.Read = func(ch chan<- prometheus.Metric) {
		use, dropped, err := x.policyUse()
		if errors.Is(err, ErrNotStarted) {
			return
		}
		if err != nil {
			drops.Fail(ch, err)
			return
		}
		for _, u := range use {
			entries.Send(ch, float64(u.Entries), u.Map)
			capacity.Send(ch, float64(u.Room), u.Map)
		}
		drops.Send(ch, float64(dropped.Input), "input")
		drops.Send(ch, float64(dropped.Forward), "forward")
	}
	return v
}
