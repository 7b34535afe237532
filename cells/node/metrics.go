package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/metrics"
)

// newCollector shows what the tunnel has dropped. On a node without a tunnel it shows nothing.
func newCollector(n *Node) *metrics.Values {
	v := metrics.NewValues("porin_node_tunnel_")
	drops := v.Counter("drops_total",
		"Packets that the programs of the tunnel have dropped: on their way to a tunnel, or out of one, by the reason.", "direction", "reason")
	pods := v.Counter("forged_total",
		"Packets of tunnels that were dropped because no node sent them: a pod of this node did, or a Service led them to the port of a node.")
	v.Read = func(ch chan<- prometheus.Metric) {
		if end, _ := n.end.Get(); end.Port == 0 {
			return
		}
		dropped, err := n.tunnel.Drops()
		if err != nil {
			drops.Fail(ch, err)
			return
		}
		for _, reason := range abi.TunnelDropReasons() {
			drops.Send(ch, float64(dropped.ToTunnel[reason]), "to", reason.String())
			drops.Send(ch, float64(dropped.FromTunnel[reason]), "from", reason.String())
		}
		if forged, err := n.tunnel.Rules().Dropped(); err == nil {
			pods.Send(ch, float64(forged))
		}
	}
	return v
}
