package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
)

// testPart is a part whose methods answer what a test sets.
type testPart struct {
	differences []Difference
	stale       []Stale
	compareErr  error
	updateErr   error
	updates     int
}

func (p *testPart) Update(Entry) error                  { p.updates++; return p.updateErr }
func (p *testPart) Delete(Entry) error                  { return nil }
func (p *testPart) Compare(Entry) ([]Difference, error) { return p.differences, p.compareErr }
func (p *testPart) Stale(Want) ([]Stale, error)         { return p.stale, nil }

func TestRestorePart(t *testing.T) {
	broken := errors.New("broken")
	one := []Difference{{routeMissing, "route to 10.0.0.2", missing}}
	rows := []struct {
		name     string
		part     testPart
		updates  int
		replaced []string
		err      error
	}{
		{"nothing differs", testPart{}, 0, nil, nil},
		{"one difference", testPart{differences: one}, 1, []string{"route to 10.0.0.2: missing"}, nil},
		{"the update fails", testPart{differences: one, updateErr: broken}, 1, []string{"route to 10.0.0.2: missing"}, broken},
		{"the comparison fails", testPart{compareErr: broken}, 0, nil, broken},
		{"a list was interrupted", testPart{compareErr: fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)}, 1, nil, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			replaced, err := restorePart(&row.part, Entry{})
			if !slices.Equal(replaced, row.replaced) || !errors.Is(err, row.err) || row.part.updates != row.updates {
				t.Errorf("replaced %q, error %v, %d updates; want %q, %v, %d", replaced, err, row.part.updates, row.replaced, row.err, row.updates)
			}
		})
	}
}

func TestPrunePart(t *testing.T) {
	broken := errors.New("broken")
	remove := func(err error) func(Want) error { return func(Want) error { return err } }
	part := &testPart{stale: []Stale{
		{Difference{Subject: "one"}, remove(nil)}, {Difference{Subject: "two"}, remove(broken)}, {Difference{Subject: "three"}, remove(nil)},
	}}
	removed, err := prunePart(part, func() Desired { return DesiredOf() })
	if !slices.Equal(removed, []string{"one", "three"}) || !errors.Is(err, broken) {
		t.Errorf("removed %q, error %v", removed, err)
	}
}

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

// ourRoute is a route of Update as the kernel lists it.
func ourRoute(link int, addr netip.Addr) netlink.Route {
	return netlink.Route{LinkIndex: link, Dst: nl.HostNet(addr), Protocol: nl.Protocol, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
}

func TestDesired(t *testing.T) {
	e, later := testEntry(), testEntry()
	later.Addresses.IPv4 = other4
	d := DesiredOf([]Entry{e, {LinkName: "por000000000003"}}, []Entry{later})
	if !d.HasLink(7) || d.HasLink(8) || !d.HasName("por000000000003") || d.HasName("por000000000004") {
		t.Errorf("links of %+v", d)
	}
	if !d.HasID(0) || !d.HasID(2) || d.HasID(3) { // 0 has the node's own counters
		t.Errorf("numbers of %+v", d)
	}
	for _, addr := range []netip.Addr{addr4, addr6, other4} {
		if !d.HasAddress(addr) || d.LacksAddress(7, addr) {
			t.Errorf("%+v does not have %s", d, addr)
		}
	}
	unknown := netip.MustParseAddr("10.0.0.99")
	if d.HasAddress(unknown) || !d.LacksAddress(7, unknown) || d.LacksAddress(8, unknown) {
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

func TestCompareRoutes(t *testing.T) {
	byGateway, toNetwork := ourRoute(7, addr4), ourRoute(7, addr4)
	byGateway.Gw = net.IPv4(10, 0, 0, 1)
	toNetwork.Dst = nl.IPNet(netip.PrefixFrom(addr4, 24))
	rows := []struct {
		name   string
		routes []netlink.Route
		want   []Difference
	}{
		{"as they should be", []netlink.Route{ourRoute(7, addr4), ourRoute(7, addr6)}, nil},
		{"ours after another", []netlink.Route{ourRoute(1, addr4), ourRoute(7, addr4), ourRoute(7, addr6)}, nil},
		{"none", nil, []Difference{{routeMissing, "route to 10.0.0.2", missing}, {routeMissing, "route to fd00::2", missing}}},
		{"by another link", []netlink.Route{ourRoute(1, addr4), ourRoute(7, addr6)},
			[]Difference{{routeDiffers, "route to 10.0.0.2", "by link 1 with protocol 80 instead of link 7 with protocol 80"}}},
		{"by a gateway", []netlink.Route{byGateway, ourRoute(7, addr6)},
			[]Difference{{routeDiffers, "route to 10.0.0.2", "by link 7 with protocol 80 instead of link 7 with protocol 80"}}},
		{"to a network", []netlink.Route{toNetwork, ourRoute(7, addr6)}, []Difference{{routeMissing, "route to 10.0.0.2", missing}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, compareRoutes(testEntry(), actualLinks{routes: row.routes})); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareNeighbours(t *testing.T) {
	e := testEntry()
	good4, good6 := *neighbour(e, addr4), *neighbour(e, addr6)
	stale, otherMAC := good4, good4
	stale.State, otherMAC.HardwareAddr = netlink.NUD_STALE, e.HostMAC[:]
	rows := []struct {
		name       string
		neighbours []netlink.Neigh
		detail     string
	}{
		{"as they should be", []netlink.Neigh{good6, good4}, ""},
		{"none of IPv4", []netlink.Neigh{good6}, missing},
		{"not permanent", []netlink.Neigh{stale, good6}, "not permanent"},
		{"another MAC", []netlink.Neigh{otherMAC, good6}, "02:00:00:00:00:02 instead of 02:00:00:00:00:01"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var want []Difference
			if row.detail != "" {
				want = []Difference{{neighMissing, "neighbour 10.0.0.2", row.detail}}
			}
			if diff := cmp.Diff(want, compareNeighbours(e, actualLinks{neighbours: row.neighbours})); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}
