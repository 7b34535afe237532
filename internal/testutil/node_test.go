package testutil_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/testutil"
)

func TestNodesConnectivity(t *testing.T) {
	fabric := testutil.NewFabric(t)
	a, b := fabric.NewNode(t), fabric.NewNode(t)
	for _, to := range []netip.Addr{a.IPv4, a.IPv6, b.IPv4, b.IPv6, testutil.OutsideIPv4, testutil.OutsideIPv6} {
		if err := testutil.Ping(a.Namespace, to, 5*time.Second); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []netip.Addr{b.IPv4, b.IPv6} {
		if err := testutil.RoundTrip(a.Namespace, b.Echo(t, addr), 5*time.Second); err != nil {
			t.Error(err)
		}
	}
	if err := testutil.Ping(a.Namespace, netip.MustParseAddr("192.0.2.99"), 0); err == nil {
		t.Error("an address that nobody has answers")
	}
}

func TestDisconnectAndConnect(t *testing.T) {
	fabric := testutil.NewFabric(t)
	a, b := fabric.NewNode(t), fabric.NewNode(t)
	if err := fabric.Disconnect(b); err != nil {
		t.Fatal(err)
	}
	if err := testutil.Ping(a.Namespace, b.IPv4, 0); err == nil {
		t.Error("a node that is disconnected answers")
	}
	if err := fabric.Connect(b); err != nil {
		t.Fatal(err)
	}
	for _, to := range []netip.Addr{b.IPv4, b.IPv6} {
		if err := testutil.Ping(a.Namespace, to, 5*time.Second); err != nil {
			t.Error(err)
		}
	}
}

func TestSnapshotSeesChanges(t *testing.T) {
	ns := testutil.NetNS(t)
	snapshot := func() (s testutil.HostSnapshot) {
		err := ns.Do(func() (err error) {
			s, err = testutil.TakeHostSnapshot()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := snapshot()
	if diff := before.Diff(snapshot()); diff != "" {
		t.Errorf("nothing happened, and yet:\n%s", diff)
	}
	handle, addr := ns.Netlink(t), netip.MustParseAddr("192.0.2.1")
	elsewhere := testutil.NetNS(t)
	for name, change := range map[string]func() error{
		"sysctl":    func() error { ns.Sysctl(t, "net/ipv4/ip_forward", "1"); return nil },
		"alias":     func() error { return handle.LinkSetAlias(testutil.LinkAt(1), "other") },
		"address":   func() error { return handle.AddrAdd(testutil.LinkAt(1), testutil.Address(netip.PrefixFrom(addr, 32))) },
		"route":     func() error { return handle.RouteAdd(testutil.HostRoute(1, addr.Next(), 0)) },
		"neighbour": func() error { return handle.NeighSet(testutil.PermanentNeighbour(1, addr, testutil.MAC(2))) },
		"qdisc":     func() error { return handle.QdiscAdd(testutil.Clsact(1)) },
		"rule": func() error {
			rule := netlink.NewRule()
			rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V6, 99, 99
			return handle.RuleAdd(rule)
		},
		"link": func() error {
			_, err := ns.AddVeth(testutil.Veth{Name: "veth", Peer: elsewhere, PeerName: "peer"})
			return err
		},
	} {
		before := snapshot()
		if err := change(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := before.Diff(snapshot()); !strings.Contains(diff, "+ ") || !strings.Contains(diff, name+" ") && name != "sysctl" && name != "alias" {
			t.Errorf("a changed %s is not seen:\n%s", name, diff)
		}
	}
	ns.Sysctl(t, "net/ipv4/ip_forward", "0")
}
