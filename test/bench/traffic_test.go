package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

const (
	trafficRounds    = 40
	roundTrips       = 2000 // of a round
	connects         = 300  // of a round
	streamRounds     = 20
	streamBytes      = 256 << 20 // of a round
	requestBytes     = 1
	streamChunkBytes = 128 << 10
)

// path is a way between two containers.
type path struct {
	name     string
	from, to *testutil.Namespace
	addr     netip.Addr // of to
}

// onlyTCP lets pods reach each other by TCP, and nothing else, in both directions.
var onlyTCP = map[string]any{
	"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": "only-tcp"},
	"spec": map[string]any{
		"tier": "Admin", "priority": 1, "subject": map[string]any{"namespaces": map[string]any{}},
		"ingress": []any{
			map[string]any{"action": "Accept", "from": everyPod, "protocols": everyPort},
			map[string]any{"action": "Deny", "from": everyPod},
		},
		"egress": []any{
			map[string]any{"action": "Accept", "to": everyPod, "protocols": everyPort},
			map[string]any{"action": "Deny", "to": everyPod},
		},
	},
}

var (
	everyPod  = []any{map[string]any{"namespaces": map[string]any{}}}
	everyPort = []any{map[string]any{"tcp": map[string]any{"destinationPort": map[string]any{"range": map[string]any{"start": 1, "end": 65535}}}}}
)

// restricted is an agent whose pods have the policy onlyTCP.
func restricted(t *testing.T) *system {
	t.Helper()
	s := porin(t, "porin-policy", "10.200.0.0/16,fd00:200::/64")
	if err := s.agent.Do(http.MethodPut, "/v1/policy", onlyTCP, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func traffic(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	policed := restricted(t)
	paths := []path{
		direct(t), attached(t, porin(t, "porin", "10.200.0.0/16,fd00:200::/64")), attached(t, policed),
		attached(t, reference(t, plugins, "ptp")), attached(t, reference(t, plugins, "bridge")),
	}
	var endpoints []v1.Endpoint
	if err := policed.agent.Get("/v1/endpoint", &endpoints); err != nil {
		t.Fatal(err)
	}
	for _, ep := range endpoints {
		if ep.Policy == nil || !ep.Policy.Egress || !ep.Policy.Ingress {
			t.Fatalf("nothing restricts %+v", ep)
		}
	}
	for _, on := range placements {
		trafficOn(t, r, paths, on)
	}
	for i, most := range []float64{1.05, 1.08} {
		on := placements[i]
		trips, connects, streams := "request-response p50, "+on.name, "connect-request-close, "+on.name, "one stream, "+on.name
		r.atMost(trips+", of a direct veth pair's", r.ratio(trips, "porin-policy"), most, "")
		r.atMost(trips+", of ptp's", r.ratio(trips, "porin-policy")/r.ratio(trips, "ptp"), 1, "")
		r.atLeast(connects+", of a direct veth pair's", r.ratio(connects, "porin-policy"), 0.88, "")
		r.atLeast(connects+", of ptp's", r.ratio(connects, "porin-policy")/r.ratio(connects, "ptp"), 1, "")
		r.atLeast(streams+", of ptp's", r.ratio(streams, "porin-policy")/r.ratio(streams, "ptp"), 1, "")
	}
}

// trafficOn measures every path with the ends in one placement, a round of each path after the other. The ratios are
// medians over the rounds.
func trafficOn(t *testing.T, r *report, paths []path, on placement) {
	t.Helper()
	p50, p99, rates, streams := newRounds("request-response p50", "us"), newRounds("request-response p99", "us"), newRounds("connect-request-close", "1/s"), newRounds("one stream", "Gbit/s")
	for round := range trafficRounds {
		for _, p := range paths {
			trips := requestResponse(t, p, on, roundTrips)
			p50.add(p.name, 1e3*percentile(trips, 0.5))
			p99.add(p.name, 1e3*percentile(trips, 0.99))
			rates.add(p.name, connects/connectRequestClose(t, p, on, connects).Seconds())
			if round < streamRounds {
				streams.add(p.name, streamBytes*8/1e9/stream(t, p, on, streamBytes).Seconds())
			}
		}
	}
	for _, measured := range []*rounds{p50, p99, rates, streams} {
		measured.report(r, on.name, paths[0].name)
	}
}

// attached is the way between two containers of a system.
func attached(t *testing.T, s *system) path {
	t.Helper()
	from, to := testutil.NewContainer(t), testutil.NewContainer(t)
	s.attach(t, from)
	addrs := s.attach(t, to)
	return path{s.name, from.Namespace, to.Namespace, addrs[0]}
}

// direct is a veth pair between two containers and nothing else.
func direct(t *testing.T) path {
	t.Helper()
	from, to := testutil.NetNS(t), testutil.NetNS(t)
	veth := testutil.Veth{Name: "eth0", MAC: testutil.MAC(2, 0, 0, 0, 0, 1), Peer: to, PeerName: "eth0", PeerMAC: testutil.MAC(2, 0, 0, 0, 0, 2)}
	if _, err := from.AddVeth(veth); err != nil {
		t.Fatal(err)
	}
	for i, ns := range []*testutil.Namespace{from, to} {
		handle, link := ns.Netlink(t), ns.Link(t, "eth0")
		addr := netip.MustParseAddr(fmt.Sprintf("10.201.0.%d", i+1))
		other := netip.MustParseAddr(fmt.Sprintf("10.201.0.%d", 2-i))
		err := errors.Join(
			handle.LinkSetUp(link),
			handle.AddrAdd(link, testutil.Address(netip.PrefixFrom(addr, 32))),
			handle.RouteAdd(testutil.HostRoute(link.Attrs().Index, other, 0)),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	return path{"direct veth", from, to, netip.MustParseAddr("10.201.0.2")}
}
