package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

const (
	trafficRounds    = 20
	roundTrips       = 2000 // of a round
	connects         = 300  // of a round
	streamRounds     = 5
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

func traffic(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	porinPath := attached(t, porin(t, "porin", "10.200.0.0/16,fd00:200::/64"))
	paths := []path{
		direct(t), porinPath,
		attached(t, reference(t, plugins, "ptp")), attached(t, reference(t, plugins, "bridge")),
	}
	for _, on := range placements {
		trafficOn(t, r, paths, on)
	}
	goals := func(on placement) {
		ratio := func(measure string) float64 {
			measure += ", " + on.name
			return r.value(measure, "porin") / r.value(measure, "direct veth")
		}
		r.atMost("request-response p50 of a direct veth pair's, "+on.name, ratio("request-response p50"), 1.03, "")
		r.atLeast("connect-request-close of a direct veth pair's, "+on.name, ratio("connect-request-close"), 0.97, "")
	}
	goals(placements[0])
	goals(placements[1])
}

// trafficOn measures every path with the ends in one placement, a round of each path after the other.
func trafficOn(t *testing.T, r *report, paths []path, on placement) {
	t.Helper()
	trips := map[string][]time.Duration{}
	rates, streams := map[string][]time.Duration{}, map[string][]time.Duration{}
	for round := range trafficRounds {
		for _, p := range paths {
			trips[p.name] = append(trips[p.name], requestResponse(t, p, on, roundTrips)...)
			rates[p.name] = append(rates[p.name], connectRequestClose(t, p, on, connects))
			if round < streamRounds {
				streams[p.name] = append(streams[p.name], stream(t, p, on, streamBytes))
			}
		}
	}
	name := func(measure string) string { return measure + ", " + on.name }
	for _, p := range paths {
		r.add(name("request-response p50"), p.name, 1e3*percentile(trips[p.name], 0.5), "us")
		r.add(name("request-response p99"), p.name, 1e3*percentile(trips[p.name], 0.99), "us")
		r.add(name("connect-request-close"), p.name, connects*1e3/percentile(rates[p.name], 0.5), "1/s")
		r.add(name("one stream"), p.name, streamBytes*8/1e9/(percentile(streams[p.name], 0.5)/1e3), "Gbit/s")
	}
	for _, m := range []string{"request-response p50", "request-response p99", "connect-request-close", "one stream"} {
		r.against(name(m), "direct veth")
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
