package datapath

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
)

var (
	addr4  = netip.MustParseAddr("10.0.0.2")
	addr6  = netip.MustParseAddr("fd00::2")
	other4 = netip.MustParseAddr("10.0.0.9")
)

// testEntry is on link 7.
func testEntry() Entry {
	return Entry{
		ID: 2, Link: 7, LinkName: "por000000000002", PodMAC: endpoint.MAC{2, 5: 1}, HostMAC: endpoint.MAC{2, 5: 2},
		Addresses: endpoint.Addresses{IPv4: addr4, IPv6: addr6},
	}
}

func TestDesired(t *testing.T) {
	e, later := testEntry(), testEntry()
	later.Addresses.IPv4 = other4
	d := DesiredOf([]Entry{e, {LinkName: "por000000000003"}, later})
	if !d.Links[7] || d.Links[8] || !d.Names["por000000000003"] || d.Names["por000000000004"] {
		t.Errorf("links of %+v", d)
	}
	if !d.IDs[0] || !d.IDs[2] || d.IDs[3] { // 0 has the node's own counters
		t.Errorf("numbers of %+v", d)
	}
	for _, addr := range []netip.Addr{addr4, addr6, other4} {
		if !d.Addresses[addr] {
			t.Errorf("%+v does not have %s", d, addr)
		}
	}
	if unknown := netip.MustParseAddr("10.0.0.99"); d.Addresses[unknown] {
		t.Errorf("%+v has %s", d, unknown)
	}
}

func TestCompareLink(t *testing.T) {
	e := testEntry()
	attrs := netlink.LinkAttrs{Index: e.Link, Name: e.LinkName, HardwareAddr: e.HostMAC[:], Flags: net.FlagUp}
	renamed, otherMAC, down := attrs, attrs, attrs
	renamed.Name, otherMAC.HardwareAddr, down.Flags = "eth0", e.PodMAC[:], 0
	rows := []struct {
		name, kind string
		link       netlink.Link
	}{
		{"as it should be", "", netlink.NewVeth(attrs)},
		{"none", linkMissing, nil},
		{"another name", linkDiffers, netlink.NewVeth(renamed)},
		{"another MAC", linkMACDiffers, netlink.NewVeth(otherMAC)},
		{"another type", linkDiffers, &netlink.Dummy{LinkAttrs: attrs}},
		{"down", linkDown, netlink.NewVeth(down)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			kind := ""
			for _, d := range compareLink(e, row.link) {
				kind += d.Kind
			}
			if kind != row.kind {
				t.Errorf("difference %q, want %q", kind, row.kind)
			}
		})
	}
}

func TestComparePodRoute(t *testing.T) {
	route := func(change func(r *netlink.Route)) netlink.Route { // a route of Apply as the kernel lists it
		r := netlink.Route{LinkIndex: 7, Dst: nl.HostNet(addr4), Protocol: nl.Protocol, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
		change(&r)
		return r
	}
	for want, r := range map[string]netlink.Route{
		"": route(func(*netlink.Route) {}),
		"by link 1 with protocol 80 instead of link 7 with protocol 80": route(func(r *netlink.Route) { r.LinkIndex = 1 }),
		"by link 7 with protocol 80 instead of link 7 with protocol 80": route(func(r *netlink.Route) { r.Gw = net.IPv4(10, 0, 0, 1) }),
		"by link 7 with protocol 4 instead of link 7 with protocol 80":  route(func(r *netlink.Route) { r.Protocol = unix.RTPROT_STATIC }),
	} {
		routes := &podRoutes{}
		if got := routes.Compare(routes.Desired(testEntry())[0].Want, podRouteOf(r)); got != want {
			t.Errorf("%v: difference %q, want %q", r, got, want)
		}
	}
}

func TestComparePodNeighbour(t *testing.T) {
	e := testEntry()
	neighbours := &podNeighbours{}
	thing := neighbours.Desired(e)[0]
	good := *neighbour(thing.Key, e.PodMAC)
	stale, otherMAC := good, good
	stale.State, otherMAC.HardwareAddr = netlink.NUD_STALE, e.HostMAC[:]
	got := []string{}
	for _, n := range []netlink.Neigh{good, stale, otherMAC} {
		got = append(got, neighbours.Compare(thing.Want, podNeighbourOf(n)))
	}
	want := []string{"", "not permanent", "02:00:00:00:00:02 instead of 02:00:00:00:00:01"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

// TestSubjectOf: messages are as the kernel sends them.
func TestSubjectOf(t *testing.T) {
	message := func(kind uint16, header []byte, attributes ...byte) syscall.NetlinkMessage {
		return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: append(header, attributes...)}
	}
	attribute := func(kind uint16, addr netip.Addr) []byte {
		value := addr.AsSlice()
		text := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
		return append(binary.NativeEndian.AppendUint16(text, kind), value...)
	}
	onLink := func(family byte, size int) []byte {
		header := make([]byte, size)
		header[0] = family
		binary.NativeEndian.PutUint32(header[4:], 7)
		return header
	}
	route := func(bits, table, protocol byte) []byte {
		header := make([]byte, unix.SizeofRtMsg)
		header[0], header[1], header[4], header[5] = unix.AF_INET, bits, table, protocol
		return header
	}
	priority := []byte{8, 0, unix.RTA_PRIORITY, 0, 0, 4, 0, 0} // comes before it
	const main = unix.RT_TABLE_MAIN
	rows := map[string]struct {
		message syscall.NetlinkMessage
		link    int
		addr    netip.Addr
	}{
		"a link has changed":              {message(unix.RTM_NEWLINK, onLink(unix.AF_UNSPEC, unix.SizeofIfInfomsg)), 7, netip.Addr{}},
		"a port of a bridge":              {message(unix.RTM_NEWLINK, onLink(unix.AF_BRIDGE, unix.SizeofIfInfomsg)), 0, netip.Addr{}},
		"a link has gone":                 {message(unix.RTM_DELLINK, onLink(unix.AF_UNSPEC, unix.SizeofIfInfomsg)), 0, netip.Addr{}},
		"a qdisc is removed":              {message(unix.RTM_DELQDISC, onLink(unix.AF_UNSPEC, 20)), 7, netip.Addr{}},
		"a filter is removed":             {message(unix.RTM_DELTFILTER, onLink(unix.AF_UNSPEC, 20)), 7, netip.Addr{}},
		"a filter is replaced":            {message(unix.RTM_NEWTFILTER, onLink(unix.AF_UNSPEC, 20)), 7, netip.Addr{}},
		"our route is removed":            {message(unix.RTM_DELROUTE, route(32, main, nl.Protocol), append(priority, attribute(unix.RTA_DST, addr4)...)...), 0, addr4},
		"another route takes its place":   {message(unix.RTM_NEWROUTE, route(32, main, unix.RTPROT_STATIC), attribute(unix.RTA_DST, addr4)...), 0, addr4},
		"our route":                       {message(unix.RTM_NEWROUTE, route(32, main, nl.Protocol), attribute(unix.RTA_DST, addr4)...), 0, netip.Addr{}},
		"a route to a network":            {message(unix.RTM_DELROUTE, route(24, main, nl.Protocol), attribute(unix.RTA_DST, addr4)...), 0, netip.Addr{}},
		"another table":                   {message(unix.RTM_DELROUTE, route(32, 100, nl.Protocol), attribute(unix.RTA_DST, addr4)...), 0, netip.Addr{}},
		"the default route":               {message(unix.RTM_DELROUTE, route(0, main, unix.RTPROT_DHCP)), 0, netip.Addr{}},
		"a neighbour is removed":          {message(unix.RTM_DELNEIGH, onLink(unix.AF_INET6, unix.SizeofNdMsg), attribute(unix.NDA_DST, addr6)...), 0, addr6},
		"a neighbour changes":             {message(unix.RTM_NEWNEIGH, onLink(unix.AF_INET6, unix.SizeofNdMsg), attribute(unix.NDA_DST, addr6)...), 0, addr6},
		"an entry of a bridge":            {message(unix.RTM_DELNEIGH, onLink(unix.AF_BRIDGE, unix.SizeofNdMsg), attribute(unix.NDA_DST, addr4)...), 0, netip.Addr{}},
		"a message that is cut":           {message(unix.RTM_DELROUTE, route(32, main, 0)[:8]), 0, netip.Addr{}},
		"an attribute that is longer":     {message(unix.RTM_DELROUTE, route(32, main, 0), 200, 0, unix.RTA_DST, 0), 0, netip.Addr{}},
		"an attribute that has no length": {message(unix.RTM_DELROUTE, route(32, main, 0), 0, 0, unix.RTA_DST, 0), 0, netip.Addr{}},
		"a message about something else":  {message(unix.RTM_NEWADDR, onLink(unix.AF_INET, unix.SizeofIfAddrmsg)), 0, netip.Addr{}},
	}
	for name, row := range rows {
		if link, addr := subjectOf(row.message); link != row.link || addr != row.addr {
			t.Errorf("%s: link %d, address %v, want %d, %v", name, link, addr, row.link, row.addr)
		}
	}
}
