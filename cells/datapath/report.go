package datapath

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy/policymap"
)

// newCollector reads the node's totals from the maps when it is asked. It sends every reason, also reasons that never
// occurred, so that a rate is right from the first drop on.
func newCollector(counters Counters) *metrics.Values {
	v := metrics.NewValues("porin_datapath_")
	connections := v.Gauge("connections", "Entries in the map of connections; one between two pods of the node has two.")
	capacity := v.Gauge("connections_capacity", "Entries that the map of connections has room for.")
	refused := v.Counter("connections_refused_total", "Packets of connections for which no entry was made, as there was no room: they go through the stack.")
	corrected := v.Counter("connections_corrected_total", "How often a count of connections, of an endpoint or of all, was wrong and was corrected by what is in the map.")
	unmanaged := v.Counter("unmanaged_total", "Decisions of policies about unknown pods of other nodes: passed to a restricted pod of this node, or denied.", "decision")
	packets := v.Counter("packets_total", "Packets from and to pods that passed.", "direction")
	bytes := v.Counter("bytes_total", "Bytes from and to pods that passed, link headers included.", "direction")
	dropped := v.Counter("drops_total", "Packets from and to pods that were dropped.", "reason")
	v.Read = func(ch chan<- prometheus.Metric) {
		totals, err := counters.Totals()
		use, useErr := counters.Connections()
		decided, decidedErr := counters.Unmanaged()
		if err = errors.Join(err, useErr, decidedErr); err != nil {
			packets.Fail(ch, err)
			return
		}
		packets.Send(ch, float64(totals.FromPod.Packets), "from-pod")
		packets.Send(ch, float64(totals.ToPod.Packets), "to-pod")
		bytes.Send(ch, float64(totals.FromPod.Bytes), "from-pod")
		bytes.Send(ch, float64(totals.ToPod.Bytes), "to-pod")
		connections.Send(ch, float64(use.Entries))
		capacity.Send(ch, float64(use.Capacity))
		refused.Send(ch, float64(use.Refused))
		corrected.Send(ch, float64(use.Corrected))
		unmanaged.Send(ch, float64(decided.Passed), "passed")
		unmanaged.Send(ch, float64(decided.Denied), "denied")
		for _, reason := range abi.DropReasons() {
			dropped.Send(ch, float64(totals.Drops[reason]), reason.String())
		}
	}
	return v
}

// describer adds an endpoint's counters to its description.
type describer struct{ counters Counters }

func newDescriber(counters Counters) *describer { return &describer{counters: counters} }

// Describe leaves the counters out when there are none: the endpoint is coming or going.
func (d *describer) Describe(ep endpoint.Endpoint, description *v1.Endpoint) {
	counted, err := d.counters.Traffic(ep.ID)
	if err != nil {
		return
	}
	description.Traffic = &v1.Traffic{
		FromPod: counter(counted.FromPod),
		ToPod:   counter(counted.ToPod),
		Drops:   drops(counted),
	}
}

func counter(c abi.Counter) v1.Counter { return v1.Counter{Packets: c.Packets, Bytes: c.Bytes} }

func drops(counted abi.Traffic) map[string]uint64 {
	byReason := map[string]uint64{}
	for reason, n := range counted.Drops {
		if n > 0 {
			byReason[abi.DropReason(reason).String()] = n
		}
	}
	return byReason
}

// reporter adds what is loaded to the agent's status.
type reporter struct{ datapath *Datapath }

func newReporter(d *Datapath) *reporter { return &reporter{datapath: d} }

func (r *reporter) Report(status *v1.Status) {
	status.Datapath = r.datapath.Status()
	if counted, err := r.datapath.Counters().Unmanaged(); err == nil && counted != (abi.Unmanaged{}) {
		status.Datapath.Unmanaged = &v1.Unmanaged{Passed: counted.Passed, Denied: counted.Denied}
	}
}

// CapacitySource tells how many endpoints fit into the maps. It is a capacity.Source.
type CapacitySource struct{ datapath *Datapath }

// NewCapacitySource returns the source of a datapath.
func NewCapacitySource(d *Datapath) CapacitySource { return CapacitySource{d} }

// Resources implements capacity.Source. Every endpoint has one entry by its link, and the maps are as large for what
// else it has.
func (s CapacitySource) Resources() []capacity.Resource {
	most := int64(s.datapath.cfg.MaxEndpoints)
	out := capacity.Resource{Name: "datapath-maps", Capacity: most, Reserve: max(1, most/100)}
	out.Err = s.datapath.maps.use(func(m *bpfMaps) error {
		return eachEntry(m.Links, func(uint32, []abi.Link) { out.Used++ })
	})
	return []capacity.Resource{out}
}

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
