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

// TestGet asks for connections that were put into the table of a namespace: translated ones, of both families, and a
// missing connection.
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

// TestDeleteOpened deletes of what is opened to a port, or to any, what matches, and nothing else.
func TestDeleteOpened(t *testing.T) {
	testutil.Root(t)
	ns := testutil.NewNode(t)
	var socket *conntrack.Socket
	if err := ns.Do(func() (err error) { socket, err = conntrack.Open(0); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, row := range []struct {
		protocol                        uint8
		source, destination, translated string
		gone                            bool
	}{
		{unix.IPPROTO_UDP, "10.1.0.2:40000", "192.0.2.1:5353", "192.0.2.1:5353", true},
		{unix.IPPROTO_UDP, "[fd00::2]:40000", "[2001:db8::1]:5353", "[2001:db8::1]:5353", true},
		{unix.IPPROTO_UDP, "10.1.0.2:40001", "192.0.2.1:5353", "10.1.0.9:53", false}, // does not match
		{unix.IPPROTO_UDP, "10.1.0.2:5353", "192.0.2.1:40000", "192.0.2.1:40000", false},
		{unix.IPPROTO_TCP, "10.1.0.2:40000", "192.0.2.1:5353", "192.0.2.1:5353", false},
	} {
		c := conntrack.Connection{Original: pair(row.source, row.destination), Reply: pair(row.translated, row.source)}
		if err := ns.Do(func() error { return create(row.protocol, c) }); err != nil {
			t.Fatal(err)
		}
		want := 0
		if row.gone {
			want = 1
		}
		family := uint8(unix.AF_INET)
		if c.Original.Source.Addr().Is6() {
			family = unix.AF_INET6
		}
		n, err := socket.DeleteOpened(family, unix.IPPROTO_UDP, 5353, func(c conntrack.Connection) bool { return c.Reply.Source == c.Original.Destination })
		if err != nil || n != want {
			t.Errorf("%v: deleted %d, %v, want %d", c, n, err, want)
		}
		if _, found, err := socket.Get(row.protocol, c.Original, false); err != nil || found == row.gone {
			t.Errorf("%v: there %v, %v, want it gone: %v", c, found, err, row.gone)
		}
	}
}

// TestDeleteOpenedToAnyPort has one left that is of another protocol.
func TestDeleteOpenedToAnyPort(t *testing.T) {
	testutil.Root(t)
	ns := testutil.NewNode(t)
	var socket *conntrack.Socket
	if err := ns.Do(func() (err error) { socket, err = conntrack.Open(0); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for i, protocol := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		to := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1000+i)).String()
		c := conntrack.Connection{Original: pair("10.1.0.2:40000", to), Reply: pair(to, "10.1.0.2:40000")}
		if err := ns.Do(func() error { return create(protocol, c) }); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := socket.DeleteOpened(unix.AF_INET, unix.IPPROTO_UDP, 0, func(conntrack.Connection) bool { return true }); err != nil || n != 2 {
		t.Errorf("deleted %d, %v, want 2", n, err)
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

// Without a descriptor for it, no socket is opened in another namespace, and nothing is left open.
func TestOpenWithoutDescriptors(t *testing.T) {
	ns := testutil.NetNS(t)
	socket, err := conntrack.Open(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
	files := testutil.OpenFiles(t)
	for free := range 2 {
		testutil.WithFewFiles(t, free, func() { socket, err = conntrack.Open(ns.FD()) })
		if err == nil || socket != nil {
			t.Errorf("%d descriptors are free: socket %v, error %v", free, socket, err)
		}
		if left := testutil.OpenFiles(t); left != files {
			t.Errorf("%d descriptors are free: %d files are open, %d before", free, left, files)
		}
	}
	testutil.NoThreadsAway(t)
}
