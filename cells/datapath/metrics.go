package datapath

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/bpf/abi"
)

// collector reads the node's totals from the maps when it is asked.
type collector struct {
	maps                  Maps
	packets, bytes, drops *prometheus.Desc
}

func newCollector(maps Maps) *collector {
	describe := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("porin_datapath_"+name, help, []string{label}, nil)
	}
	return &collector{
		maps:    maps,
		packets: describe("packets_total", "Packets from and to pods that passed.", "direction"),
		bytes:   describe("bytes_total", "Bytes from and to pods that passed, link headers included.", "direction"),
		drops:   describe("drops_total", "Packets from and to pods that were dropped.", "reason"),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.packets, c.bytes, c.drops} {
		ch <- desc
	}
}

// Collect sends every reason, also those that never were, so that a rate is right from the first drop on.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	totals, err := c.maps.Totals()
	if err != nil {
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
	for _, reason := range abi.DropReasons() {
		send(c.drops, totals.Drops[reason], reason.String())
	}
}
