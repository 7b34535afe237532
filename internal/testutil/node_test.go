package testutil_test

import (
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

func TestNodesReachEachOtherAndTheWorldOutside(t *testing.T) {
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
	ns.Sysctl(t, "net/ipv4/ip_forward", "1")
	if diff := before.Diff(snapshot()); diff == "" {
		t.Error("a changed sysctl is not seen")
	}
	ns.Sysctl(t, "net/ipv4/ip_forward", "0")
}
