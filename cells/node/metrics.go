package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/bpf/abi"
)

// collector shows what the tunnel has dropped.
type collector struct {
	node        *Node
	drops, pods *prometheus.Desc
}

func newCollector(n *Node) *collector {
	return &collector{
		node: n,
		drops: prometheus.NewDesc("porin_node_tunnel_drops_total",
			"Packets that the programs of the tunnel have dropped: on their way to a tunnel, or out of one, by the reason.", []string{"direction", "reason"}, nil),
		pods: prometheus.NewDesc("porin_node_tunnel_forged_total", "Packets of tunnels that were dropped because no node sent them: a pod of this node did, or a Service led them to the port of a node.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.drops
	ch <- c.pods
}

// Collect implements prometheus.Collector. Of a node without a tunnel there is nothing to say.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	if end, _ := c.node.end.Get(); end.Port == 0 {
		return
	}
	dropped, err := c.node.tunnel.Drops()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.drops, err)
		return
	}
	for _, reason := range abi.TunnelDropReasons() {
		ch <- prometheus.MustNewConstMetric(c.drops, prometheus.CounterValue, float64(dropped.ToTunnel[reason]), "to", reason.String())
		ch <- prometheus.MustNewConstMetric(c.drops, prometheus.CounterValue, float64(dropped.FromTunnel[reason]), "from", reason.String())
	}
	if forged, err := c.node.tunnel.Rules().Dropped(); err == nil {
		ch <- prometheus.MustNewConstMetric(c.pods, prometheus.CounterValue, float64(forged))
	}
}
