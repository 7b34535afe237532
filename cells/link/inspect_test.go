package link_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/testutil"
)

var _ link.Inspector = (*link.Step)(nil)

func TestInspect(t *testing.T) {
	defaults := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	rows := []struct {
		name, ifname string // of the interface that is changed
		change       func(t *testing.T, n *node, h *netlink.Handle, ep endpoint.Endpoint)
		want         string
	}{
		{"nothing", "eth0", func(*testing.T, *node, *netlink.Handle, endpoint.Endpoint) {}, ""},
		{"nothing of a later interface", "net1", func(*testing.T, *node, *netlink.Handle, endpoint.Endpoint) {}, ""},
		{"interface removed", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.LinkDel(testutil.LinkAt(ep.Container.Index)))
		}, "interface eth0 is missing in the container"},
		{"another interface of the name", "eth0", func(t *testing.T, n *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.LinkSetDown(testutil.LinkAt(ep.Container.Index)))
			must(t, h.LinkSetName(testutil.LinkAt(ep.Container.Index), "renamed"))
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "eth0"
			pair := netlink.NewVeth(attrs)
			pair.PeerName, pair.PeerNamespace = "peer", netlink.NsFd(n.FD())
			must(t, h.LinkAdd(pair))
		}, "interface eth0 in the container is not the other end of"},
		{"down", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.LinkSetDown(testutil.LinkAt(ep.Container.Index)))
		}, "interface eth0 is down in the container"},
		{"MAC", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.LinkSetHardwareAddr(testutil.LinkAt(ep.Container.Index), testutil.MAC(2, 0, 0, 0, 9, 9)))
		}, "interface eth0 has the MAC 02:00:00:00:09:09, and the agent gave it "},
		{"IPv4 address", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.AddrDel(testutil.LinkAt(ep.Container.Index), testutil.Address(hostPrefix(ep.Addresses.IPv4))))
		}, "address 10.0.0.1 is missing on interface eth0"},
		{"IPv6 address", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.AddrDel(testutil.LinkAt(ep.Container.Index), testutil.Address(hostPrefix(ep.Addresses.IPv6))))
		}, "address fd00::1 is missing on interface eth0"},
		{"IPv4 route", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.RouteDel(testutil.GatewayRoute(ep.Container.Index, defaults[0], v1.GatewayIPv4)))
		}, "route to 0.0.0.0/0 by 169.254.1.1 is missing on interface eth0"},
		{"IPv6 route", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.RouteDel(testutil.GatewayRoute(ep.Container.Index, defaults[1], v1.GatewayIPv6)))
		}, "route to ::/0 by fe80::1 is missing on interface eth0"},
		{"neighbour removed", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.NeighDel(testutil.PermanentNeighbour(ep.Container.Index, v1.GatewayIPv4, nil)))
		}, "permanent neighbour 169.254.1.1 with MAC "},
		{"neighbour with another MAC", "eth0", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.NeighSet(testutil.PermanentNeighbour(ep.Container.Index, v1.GatewayIPv6, testutil.MAC(2))))
		}, "permanent neighbour fe80::1 with MAC "},
		{"route of a later interface", "net1", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			route := testutil.GatewayRoute(ep.Container.Index, defaults[0], v1.GatewayIPv4)
			route.Priority = 1024 + ep.Container.Index
			must(t, h.RouteDel(route))
		}, "route to 0.0.0.0/0 by 169.254.1.1 is missing on interface net1"},
		{"rule of a later interface", "net1", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			must(t, h.RuleDel(sourceRule(ep.Addresses.IPv6, 10_000, 80_000+ep.Container.Index, 80)))
		}, "rule for packets from fd00::2 is missing"},
		{"table of a later interface", "net1", func(t *testing.T, _ *node, h *netlink.Handle, ep endpoint.Endpoint) {
			route := testutil.GatewayRoute(ep.Container.Index, defaults[0], v1.GatewayIPv4)
			route.Table = 80_000 + ep.Container.Index
			must(t, h.RouteDel(route))
		}, "route to 0.0.0.0/0 by 169.254.1.1 is missing in table 8000"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			n, c := newNode(t), newContainer(t)
			ends := map[string]endpoint.Endpoint{}
			for i, ifname := range []string{"eth0", "net1"} {
				ends[ifname] = n.attach(t, c, endpointOf(ifname, byte(1+i)))
			}
			row.change(t, n, c.Netlink(t), ends[row.ifname])
			before := setup(t, c.Namespace)
			for ifname, ep := range ends {
				want := ""
				if ifname == row.ifname {
					want = row.want
				}
				difference, err := n.step.Inspect(t.Context(), ep, c.netns)
				if err != nil || !strings.HasPrefix(difference, want) || (want == "") != (difference == "") {
					t.Errorf("%s: difference %q, error %v, want %q", ifname, difference, err, want)
				}
			}
			wantSetup(t, c.Namespace, before)
		})
	}
}

func TestInspectWithoutNamespace(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	if _, err := n.step.Inspect(t.Context(), ep, nil); !errors.Is(err, link.ErrNoNamespace) {
		t.Errorf("error %v, want %v", err, link.ErrNoNamespace)
	}
}
