package node

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// reporter tells how the node stands in the network: in the agent's status, in GET /v1/peer, and to the supervisor.
type reporter struct{ node *Node }

func newReporter(n *Node) reporter { return reporter{n} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	view, _ := r.node.peers.View()
	self, _ := r.node.self.Get()
	if self.Addresses == nil {
		self.Addresses = []netip.Addr{}
	}
	n := &status.Network // another cell says what is masqueraded
	n.Addresses, n.Blocks, n.Routing, n.Published, n.Peers = self.Addresses, len(self.Blocks), string(r.node.router.mode), view.Own != nil, len(view.Peers)
	n.StoreAway, n.AsOf = view.StoreAway, view.AsOf
	for _, p := range view.Peers {
		if p.Missing {
			status.Network.MissingPeers++
		}
	}
	status.Network.Errors = len(r.node.Routing().Errors)
	status.Network.Tunnel = r.tunnel(self)
}

// tunnel is nil for a node that neither has tunnels nor should.
func (r reporter) tunnel(self Self) *v1.TunnelStatus {
	routing := r.node.Routing()
	if self.Tunnel.Port == 0 && self.Routing != cluster.RoutingVXLAN && routing.Tunnel == nil {
		return nil
	}
	status := &v1.TunnelStatus{Port: self.Tunnel.Port, Addresses: self.Tunnel.Addresses, Dropped: map[string]uint64{}}
	dropped, err := r.node.tunnel.Drops()
	for _, reason := range abi.TunnelDropReasons() {
		if n := dropped.FromTunnel[reason]; n > 0 {
			status.Dropped[reason.String()] = n
		}
	}
	status.Error = fault.Text(errors.Join(routing.Tunnel, err))
	return status
}

// Mount implements server.Routes.
func (r reporter) Mount(router chi.Router) {
	router.Method(http.MethodGet, "/v1/peer", httpx.Handler(r.list))
}

func (r reporter) list(w http.ResponseWriter, _ *http.Request) error {
	view, _ := r.node.peers.View()
	state := r.node.Routing()
	list := []v1.Peer{}
	for _, p := range view.Peers {
		out := v1.Peer{
			Name: p.Node.Name, Key: p.Node.Key, Addresses: p.Addresses, Routing: string(p.Routing), Health: p.Health, Version: p.AgentVersion, Missing: p.Missing,
			Blocks: []v1.PeerBlock{},
		}
		for _, b := range p.Blocks {
			out.Blocks = append(out.Blocks, v1.PeerBlock{CIDR: b, Reach: string(state.Reach[b]), Error: fault.Text(state.Errors[b])})
		}
		for _, c := range view.Conflicts {
			if c.Node == p.Node {
				out.Blocks = append(out.Blocks, v1.PeerBlock{CIDR: c.Block, Error: "not reached: " + c.Reason})
			}
		}
		list = append(list, out)
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// Condition implements supervisor.HealthReporter.
func (r reporter) Condition() supervisor.Condition {
	reason := ""
	state := r.node.Routing()
	self, _ := r.node.self.Get()
	view, _ := r.node.peers.View()
	switch {
	case view.StoreAway:
		reason = awayText(view)
	case state.Err != nil:
		reason = "the routes to other nodes are not followed: " + state.Err.Error()
	case r.node.publisher != nil && r.node.publisher.overwritten():
		reason = fmt.Sprintf("another agent overwrites the record of node %s: if two machines have this name, give one of them another", self.Node.Name)
	case state.Tunnel != nil:
		reason = "the tunnel to other nodes: " + state.Tunnel.Error()
	case state.RemoteBlocksErr != nil:
		reason = "the datapath does not know the blocks of other nodes: " + state.RemoteBlocksErr.Error()
	case len(state.Errors) > 0:
		var texts []string
		for _, err := range state.Errors {
			texts = append(texts, err.Error())
		}
		reason = fmt.Sprintf("%d blocks of other nodes have no route: %s", len(texts), slices.Min(texts))
	default:
		return supervisor.Condition{Cell: "node", State: supervisor.OK}
	}
	return supervisor.Condition{Cell: "node", State: supervisor.Degraded, Reason: reason}
}

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
