package datapath_test

import (
	"log/slog"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/internal/testutil"
)

// TestHostFilter: pods with their programs, link-local gateway and permanent neighbours, under the table of nftables.
func TestHostFilter(t *testing.T) {
	n := newNode(t)
	p, other := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, p, other)
	filter := hostfilter.New(n.File(), slog.New(slog.DiscardHandler))
	t.Cleanup(func() { must(t, filter.Close()) })
	must(t, filter.Apply(hostfilter.Desired{
		Pods: []hostfilter.Pod{{Link: p.index(), Rows: []hostfilter.Row{
			{Protocol: unix.IPPROTO_TCP, Last: 65535, Allow: true},
			{},
		}}},
		Enforced: []int{p.index(), other.index()},
	}))
	for _, addr := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")} {
		must(t, n.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(hostPrefix(addr))))
		must(t, echo(t, p.Namespace, n.Namespace, "tcp", addr))
		if pingWithin(unreachable, p.Namespace, addr) == nil {
			t.Errorf("%s answers, and the pod has no right to ping it", addr)
		}
		must(t, ping(other.Namespace, addr))
	}
	for _, addr := range p.endpoint.Addresses.List() {
		must(t, echo(t, n.Namespace, p.Namespace, "tcp", addr))
		must(t, ping(n.Namespace, addr))
		must(t, echo(t, other.Namespace, p.Namespace, "tcp", addr))
	}
}
