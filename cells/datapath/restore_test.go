package datapath_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
)

func (n *node) restore(t testing.TB, p *pod) (replaced []string) {
	t.Helper()
	replaced, err := n.step.Restore(context.Background(), p.endpoint)
	must(t, err)
	return replaced
}

func TestRestoreSaysWhatItMadeAnew(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	must(t, n.conn.Do(
		rtnl.AddAddr(1, netip.MustParsePrefix("192.0.2.1/32")), rtnl.AddAddr(1, netip.MustParsePrefix("2001:db8::1/128")),
	))
	for _, row := range breakages {
		t.Run(row.name, func(t *testing.T) {
			row.do(t, n, a)
			if got := strings.Join(n.restore(t, a), "; "); !row.fits(a, got) {
				t.Errorf("replaced:\n%s\nwant:\n%s", got, row.report)
			}
			for _, p := range []*pod{a, b} {
				if got := n.restore(t, p); got != nil {
					t.Errorf("%s when all is as it should be: replaced %q", p.endpoint.Spec.Attachment, got)
				}
			}
			for _, addr := range b.endpoint.Addresses.List() {
				must(t, ping(a.Namespace, addr))
			}
			for _, addr := range a.endpoint.Addresses.List() {
				must(t, ping(n.Namespace, addr))
			}
		})
	}
}

// A rule may lead the node past the main table, and our route is in it all the same.
func TestARuleOfTheNodesIsNoFaultOfOurRoute(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	better := rtnl.Route{Dst: host(a.endpoint.Addresses.IPv6), Link: 1, Metric: 1, Protocol: unix.RTPROT_STATIC}
	must(t, n.conn.Do(rtnl.AddRoute(better)))
	if got := n.restore(t, a); got != nil {
		t.Errorf("replaced %q", got)
	}
}

func TestPruneNamesWhatItRemovesAndLeavesTheRest(t *testing.T) {
	n := newNode(t)
	a, gone := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, gone)
	link := a.index()
	stray, others := netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("10.0.0.98")
	uplink := (&real{node: n}).addOther(t, "eth0")
	must(t, n.conn.Do(
		rtnl.AddRoute(rtnl.Route{Dst: host(stray), Link: link, Scope: unix.RT_SCOPE_LINK, Protocol: rtnl.Protocol}),
		rtnl.AddRoute(rtnl.Route{Dst: host(others), Link: link, Scope: unix.RT_SCOPE_LINK, Protocol: unix.RTPROT_STATIC}),
		rtnl.ReplaceNeigh(rtnl.Neigh{Link: link, Addr: stray, MAC: rtnl.MAC{2}}),
		rtnl.ReplaceNeigh(rtnl.Neigh{Link: uplink, Addr: stray, MAC: rtnl.MAC{2}}),
	))
	must(t, n.pinned(t, bpf.Traffic).Put(uint32(77), make([]abi.Traffic, ebpf.MustPossibleCPU())))
	removed, err := n.step.Prune(context.Background(), endpoints(a))
	must(t, err)
	want := []string{
		"entry of map endpoints: 10.0.0.2", "entry of map endpoints: fd00::2", "entry of map links: LINK",
		"entry of map traffic: 2", "entry of map traffic: 77", "link NAME, index LINK",
		"neighbour 10.0.0.99 on link HOST", "route to 10.0.0.99/32 by link HOST",
	}
	for i := range want {
		want[i] = gone.fill(strings.ReplaceAll(want[i], "HOST", a.fill("LINK")))
	}
	slices.Sort(removed)
	if !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
	if again, err := n.step.Prune(context.Background(), endpoints(a)); err != nil || len(again) > 0 {
		t.Errorf("the second time: removed %q, error %v", again, err)
	}
	var route rtnl.Route
	var neigh rtnl.Neigh
	must(t, n.conn.Do(rtnl.GetRoute(others, &route), rtnl.GetNeigh(uplink, stray, &neigh)))
}

// TestALinkThatGoesWhileItIsLookedAtHasNoRoutes: it was there when its filters were asked for, and the list of its routes is
// refused.
func TestALinkThatGoesWhileItIsLookedAtHasNoRoutes(t *testing.T) {
	n := newNode(t)
	gone := datapath.Entry{ID: 1, Link: 4711, Addresses: endpointmanager.Addresses{IPv4: netip.MustParseAddr("10.0.0.9")}}
	flaws, err := datapath.RouteFlaws(n.conn, gone)
	if err != nil || len(flaws) != 1 {
		t.Errorf("flaws %v, error %v, want a route that is missing", flaws, err)
	}
}
