package conntrack_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/conntrack"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func pair(source, destination string) conntrack.Tuple {
	return conntrack.Tuple{Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination)}
}

// TestGet asks for connections that were put into the table of a namespace: translated ones, of both families, and one
// that is not there.
func TestGet(t *testing.T) {
	testutil.Root(t)
	ns := testutil.NewNode(t)
	var socket *conntrack.Socket
	if err := ns.Do(func() (err error) { socket, err = conntrack.Open(0); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, c := range []struct {
		name     string
		protocol uint8
		want     conntrack.Connection
	}{
		{"TCP by a Service", unix.IPPROTO_TCP, conntrack.Connection{Original: pair("10.1.0.2:40000", "10.96.0.1:80"), Reply: pair("10.1.0.3:8080", "10.1.0.2:40000")}},
		{"UDP, masqueraded", unix.IPPROTO_UDP, conntrack.Connection{Original: pair("10.1.0.2:40000", "192.0.2.1:53"), Reply: pair("192.0.2.1:53", "198.51.100.1:1024")}},
		{"TCP, IPv6", unix.IPPROTO_TCP, conntrack.Connection{Original: pair("[fd00::2]:40000", "[fd00:96::1]:80"), Reply: pair("[fd00::3]:8080", "[fd00::2]:40000")}},
	} {
		if err := ns.Do(func() error { return create(c.protocol, c.want) }); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, packet := range []conntrack.Tuple{c.want.Original, c.want.Reply} {
			if got, found, err := socket.Get(c.protocol, packet, packet == c.want.Reply); err != nil || !found || got != c.want {
				t.Errorf("%s, by %v: %v, %v, %v, want %v", c.name, packet, got, found, err, c.want)
			}
		}
	}
	if got, found, err := socket.Get(unix.IPPROTO_TCP, pair("10.1.0.9:1", "10.1.0.8:2"), false); err != nil || found {
		t.Errorf("one that is not there: %v, %v, %v", got, found, err)
	}
}

func create(protocol uint8, c conntrack.Connection) error {
	tuple := func(t conntrack.Tuple) netlink.IPTuple {
		return netlink.IPTuple{
			Protocol: protocol, SrcIP: net.IP(t.Source.Addr().AsSlice()), SrcPort: t.Source.Port(), DstIP: net.IP(t.Destination.Addr().AsSlice()), DstPort: t.Destination.Port(),
		}
	}
	family := netlink.InetFamily(unix.AF_INET)
	if c.Original.Source.Addr().Is6() {
		family = unix.AF_INET6
	}
	flow := &netlink.ConntrackFlow{FamilyType: uint8(family), Forward: tuple(c.Original), Reverse: tuple(c.Reply), TimeOut: 60}
	if protocol == unix.IPPROTO_TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: 3} // TCP_CONNTRACK_ESTABLISHED
	}
	return netlink.ConntrackCreate(netlink.ConntrackTable, family, flow)
}

// BenchmarkGet is one question.
func BenchmarkGet(b *testing.B) {
	testutil.Root(b)
	ns := testutil.NewNode(b)
	var socket *conntrack.Socket
	if err := ns.Do(func() (err error) { socket, err = conntrack.Open(0); return err }); err != nil {
		b.Fatal(err)
	}
	defer socket.Close()
	c := conntrack.Connection{Original: pair("10.1.0.2:40000", "10.96.0.1:80"), Reply: pair("10.1.0.3:8080", "10.1.0.2:40000")}
	if err := ns.Do(func() error { return create(unix.IPPROTO_TCP, c) }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := socket.Get(unix.IPPROTO_TCP, c.Original, false); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}
