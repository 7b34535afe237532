package datapath

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
)

// collector reads the node's totals from the maps when it is asked.
type collector struct {
	counters              Counters
	packets, bytes, drops *prometheus.Desc

	connections, capacity, refused, corrected, unmanaged *prometheus.Desc
}

func newCollector(counters Counters) *collector {
	describe := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("porin_datapath_"+name, help, []string{label}, nil)
	}
	plain := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("porin_datapath_"+name, help, nil, nil)
	}
	return &collector{
		counters:    counters,
		connections: plain("connections", "Entries in the map of connections; one between two pods of the node has two."),
		capacity:    plain("connections_capacity", "Entries that the map of connections has room for."),
		refused:     plain("connections_refused_total", "Packets of connections for which no entry was made, as there was no room: they go through the stack."),
		corrected:   plain("connections_corrected_total", "How often a count of connections, of an endpoint or of all, was wrong and was corrected by what is in the map."),
		unmanaged:   describe("unmanaged_total", "Decisions of policies about unknown pods of other nodes: passed to a restricted pod of this node, or denied.", "decision"),
		packets:     describe("packets_total", "Packets from and to pods that passed.", "direction"),
		bytes:       describe("bytes_total", "Bytes from and to pods that passed, link headers included.", "direction"),
		drops:       describe("drops_total", "Packets from and to pods that were dropped.", "reason"),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.packets, c.bytes, c.drops, c.connections, c.capacity, c.refused, c.corrected, c.unmanaged} {
		ch <- desc
	}
}

// Collect sends every reason, also reasons that never occurred, so that a rate is right from the first drop on.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	totals, err := c.counters.Totals()
	use, useErr := c.counters.Connections()
	unmanaged, unmanagedErr := c.counters.Unmanaged()
	if err = errors.Join(err, useErr, unmanagedErr); err != nil {
		ch <- prometheus.NewInvalidMetric(c.packets, err)
		return
	}
	send := func(desc *prometheus.Desc, n uint64, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), label)
	}
	send(c.packets, totals.FromPod.Packets, "from-pod")
	send(c.packets, totals.ToPod.Packets, "to-pod")
	send(c.bytes, totals.FromPod.Bytes, "from-pod")
	send(c.bytes, totals.ToPod.Bytes, "to-pod")
	ch <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(use.Entries))
	ch <- prometheus.MustNewConstMetric(c.capacity, prometheus.GaugeValue, float64(use.Capacity))
	ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(use.Refused))
	ch <- prometheus.MustNewConstMetric(c.corrected, prometheus.CounterValue, float64(use.Corrected))
	send(c.unmanaged, unmanaged.Passed, "passed")
	send(c.unmanaged, unmanaged.Denied, "denied")
	for _, reason := range abi.DropReasons() {
		send(c.drops, totals.Drops[reason], reason.String())
	}
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
