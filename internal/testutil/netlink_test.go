package testutil_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// TestNetlinkLists makes one of each thing at two links, and wants to read what it made.
func TestNetlinkLists(t *testing.T) {
	near, far := testutil.NetNS(t), testutil.NetNS(t)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	programID, _ := info.ID()

	handle := near.Netlink(t)
	prefixes := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}
	for i, name := range []string{"one", "two"} {
		link, err := near.AddVeth(testutil.Veth{Name: name, MAC: testutil.MAC(2, byte(i)), MTU: 1400, Peer: far, PeerName: name, PeerMAC: testutil.MAC(2, 9, byte(i))})
		if err != nil {
			t.Fatal(err)
		}
		index := link.Attrs().Index
		for _, prefix := range prefixes {
			next := prefix.Addr().Next()
			route := testutil.HostRoute(index, next, testutil.RouteProtocol)
			route.Priority = 1 + i // which makes it another one
			err := errors.Join(
				handle.AddrAdd(link, testutil.Address(prefix)), handle.RouteAdd(route),
				handle.NeighSet(testutil.PermanentNeighbour(index, next, testutil.MAC(2, 7))),
			)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := handle.QdiscAdd(testutil.Clsact(index)); err != nil {
			t.Fatal(err)
		}
		if err := handle.FilterReplace(testutil.Filter(index, netlink.HANDLE_MIN_EGRESS, 3, 4, program.FD())); err != nil {
			t.Fatal(err)
		}
	}

	one := near.Link(t, "one")
	attrs, index := one.Attrs(), one.Attrs().Index
	if _, veth := one.(*netlink.Veth); !veth || attrs.MTU != 1400 || attrs.HardwareAddr.String() != "02:00:00:00:00:00" || !testutil.IsUp(one) {
		t.Errorf("link %+v", one)
	}
	if peer := far.Link(t, "one"); attrs.ParentIndex != peer.Attrs().Index || peer.Attrs().HardwareAddr.String() != "02:09:00:00:00:00" || testutil.IsUp(peer) {
		t.Errorf("other end %+v of %+v", peer, one)
	}
	for link, times := range map[int]int{index: 1, 0: 2} {
		addrs, err1 := near.Addrs(link)
		routes, err2 := near.Routes(link)
		neighbours, err3 := near.PermanentNeighbours(link)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for _, prefix := range prefixes {
			var found [3]int
			for _, a := range addrs {
				if nl.Prefix(a.IPNet) == prefix {
					found[0]++
				}
			}
			for _, r := range routes {
				if nl.Prefix(r.Dst).Addr() == prefix.Addr().Next() && r.Protocol == testutil.RouteProtocol {
					found[1]++
				}
			}
			for _, n := range neighbours {
				if nl.Addr(n.IP) == prefix.Addr().Next() && n.HardwareAddr.String() == "02:07:00:00:00:00" {
					found[2]++
				}
			}
			if want := [3]int{times, times, times}; found != want {
				t.Errorf("link %d, %s: found %v, want %v", link, prefix, found, want)
			}
		}
	}
	filters, err := near.Filters(index, netlink.HANDLE_MIN_EGRESS)
	if err != nil || len(filters) != 1 || filters[0].Attrs().Handle != 3 || filters[0].Attrs().Priority != 4 || filters[0].(*netlink.BpfFilter).Id != int(programID) {
		t.Errorf("filters %v, %v, want one with program %d", filters, err, programID)
	}
	for link, side := range map[int]uint32{index: netlink.HANDLE_MIN_INGRESS, 1: netlink.HANDLE_MIN_EGRESS} {
		if filters, err := near.Filters(link, side); err != nil || len(filters) > 0 {
			t.Errorf("link %d: filters %v, %v, want none", link, filters, err)
		}
	}
}

func TestCloseNamespace(t *testing.T) {
	near, far := testutil.NetNS(t), testutil.NetNS(t)
	link, err := near.AddVeth(testutil.Veth{Name: "one", Peer: far, PeerName: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if names := far.LinkNames(t); len(names) != 2 {
		t.Fatalf("links %v", names)
	}
	far.Close()
	testutil.Eventually(t, func() error {
		if near.HasLink(t, link.Attrs().Index) {
			return errors.New("the other end of the link is there: the namespace has not ended")
		}
		return nil
	})
	if links, err := far.Links(); err == nil {
		t.Errorf("a closed namespace has links %v", testutil.Names(links))
	}
}
