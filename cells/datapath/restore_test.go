package datapath_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func (n *node) restore(t testing.TB, p *pod) (replaced []string) {
	t.Helper()
	replaced, err := n.step.Restore(context.Background(), p.endpoint)
	must(t, err)
	return replaced
}

func TestRestoreReportsReplaced(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	for _, prefix := range []string{"192.0.2.1/32", "2001:db8::1/128"} {
		must(t, n.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.MustParsePrefix(prefix))))
	}
	// The kernel adds the local routes of the addresses a little later.
	testutil.Eventually(t, func() error { return pingWithin(100*time.Millisecond, n.Namespace, a.endpoint.Addresses.IPv6) })
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
func TestRestoreWithBetterRoute(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	better := testutil.HostRoute(1, a.endpoint.Addresses.IPv6, unix.RTPROT_STATIC)
	better.Priority = 1
	must(t, n.Netlink(t).RouteAdd(better))
	if got := n.restore(t, a); got != nil {
		t.Errorf("replaced %q", got)
	}
}

func TestPruneReportsRemoved(t *testing.T) {
	n := newNode(t)
	a, gone := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, gone)
	link := a.index()
	unknownAddr, others := netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("10.0.0.98")
	uplink := (&realKernel{node: n}).addOther(t, "eth0")
	handle := n.Netlink(t)
	must(t, handle.RouteAdd(testutil.HostRoute(link, unknownAddr, testutil.RouteProtocol)))
	must(t, handle.RouteAdd(testutil.HostRoute(link, others, unix.RTPROT_STATIC)))
	must(t, handle.NeighSet(testutil.PermanentNeighbour(link, unknownAddr, testutil.MAC(2))))
	must(t, handle.NeighSet(testutil.PermanentNeighbour(uplink, unknownAddr, testutil.MAC(2))))
	must(t, n.pinned(t, bpf.Drops).Put(uint32(77), make([]abi.Drops, ebpf.MustPossibleCPU())))
	removed, err := n.step.Prune(context.Background(), endpoints(a))
	must(t, err)
	want := []string{
		"map entry drops 2", "map entry drops 77",
		"map entry endpoints 10.0.0.2", "map entry endpoints fd00::2", "map entry links LINK",
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
	routes, err := n.Routes(link)
	must(t, err)
	if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return nl.Prefix(r.Dst) == hostPrefix(others) }) {
		t.Errorf("routes %v, want one to %s", routes, others)
	}
	neighbours, err := n.PermanentNeighbours(uplink)
	must(t, err)
	if len(neighbours) != 1 || nl.Addr(neighbours[0].IP) != unknownAddr {
		t.Errorf("neighbours of the uplink %v, want %s", neighbours, unknownAddr)
	}
}

// TestPodRouteWithoutLink: the link was there when its filters were read, and the list of its routes is refused.
func TestPodRouteWithoutLink(t *testing.T) {
	n := newNode(t)
	if found, err := n.datapath.PodRouteFound(4711, netip.MustParseAddr("10.0.0.9")); err != nil || found {
		t.Errorf("found %v, error %v, want none", found, err)
	}
}
