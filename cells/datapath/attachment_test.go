package datapath_test

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func TestAttachUndone(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	ep := p.endpoint
	// Too small for IPv6: the last route cannot be made.
	must(t, n.Netlink(t).LinkSetMTU(nl.LinkAt(ep.Host.Index), 1000))
	if _, err := n.step.Attach(context.Background(), ep, p.netns); err == nil {
		t.Fatal("attached without an IPv6 route")
	}
	wantState(t, &realKernel{node: n}, datapathtest.State{})
	routes, err := n.Routes(ep.Host.Index)
	must(t, err)
	neighbours, err := n.PermanentNeighbours(ep.Host.Index)
	must(t, err)
	for _, neighbour := range neighbours {
		t.Errorf("neighbour %+v is left", neighbour)
	}
	for _, r := range routes {
		if r.Protocol == testutil.RouteProtocol {
			t.Errorf("route %+v is left", r)
		}
	}
}

func TestPruneRoutes(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	stale, others := netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("10.0.0.98")
	must(t, n.Netlink(t).RouteAdd(testutil.HostRoute(a.index(), stale, testutil.RouteProtocol)))
	must(t, n.Netlink(t).RouteAdd(testutil.HostRoute(a.index(), others, unix.RTPROT_STATIC)))
	_, err := n.step.Prune(context.Background(), endpoints(a))
	must(t, err)
	routes, err := n.Routes(0)
	must(t, err)
	left := map[netip.Prefix]bool{}
	for _, r := range routes {
		left[nl.Prefix(r.Dst)] = true
	}
	if left[hostPrefix(stale)] || !left[hostPrefix(others)] || !left[hostPrefix(a.endpoint.Addresses.IPv4)] {
		t.Errorf("routes left: %v", left)
	}
}
