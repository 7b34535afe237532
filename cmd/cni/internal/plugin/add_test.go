package plugin_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

var comparable = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// kernel is what the kernel has of one attachment, less what it made by itself.
type kernel struct {
	Host, Container rtnl.Link
	Addrs           []rtnl.Addr
	Routes          []rtnl.Route
	Neighs          []rtnl.Neigh
}

func (w *world) kernel(ctr *testutil.Container) (k kernel) {
	w.t.Helper()
	pod := ctr.Conn(w.t)
	var host, eth0 rtnl.Link
	err := errors.Join(
		w.node.Do(rtnl.LinkByName(v1.HostInterfaceName(ctr.ID, ctr.IfName), &host)),
		pod.Do(rtnl.LinkByName(ctr.IfName, &eth0)),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	k = readLink(w.t, pod, eth0.Index)
	k.Host, k.Container = host, eth0
	return k
}

// readLink reads what is on one interface.
func readLink(t testing.TB, conn *rtnl.Conn, index int) (k kernel) {
	t.Helper()
	var err error
	if k.Addrs, err = conn.Addrs(index); err == nil {
		k.Routes, err = conn.Routes(index)
	}
	if err == nil {
		k.Neighs, err = conn.Neighs(index)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.Addrs = slices.DeleteFunc(k.Addrs, func(a rtnl.Addr) bool { return a.Prefix.Addr().IsLinkLocalUnicast() })
	k.Routes = slices.DeleteFunc(k.Routes, func(r rtnl.Route) bool { return r.Protocol == unix.RTPROT_KERNEL })
	k.Neighs = slices.DeleteFunc(k.Neighs, func(n rtnl.Neigh) bool { return n.State&unix.NUD_NOARP != 0 })
	return k
}

func TestAddLeavesExactlyWhatTheDesignSays(t *testing.T) {
	w := newWorld(t)
	ctr := testutil.NewContainer(t)
	w.mustAdd(ctr, map[string]any{"mtu": 1400})
	got := w.kernel(ctr)

	hostText, podText := v1.InterfaceMACs(ctr.ID, "eth0")
	hostMAC, _ := rtnl.ParseMAC(hostText)
	podMAC, _ := rtnl.ParseMAC(podText)
	const up = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP | unix.IFF_BROADCAST | unix.IFF_MULTICAST
	host, eth0 := got.Host.Index, got.Container.Index
	gw4, gw6 := v1.GatewayIPv4, v1.GatewayIPv6
	want := kernel{
		Host: rtnl.Link{
			Index: host, Name: v1.HostInterfaceName(ctr.ID, "eth0"), Alias: fmt.Sprintf("%s:eth0 began=%d", ctr.ID, w.agent.LastPut().Began), Kind: "veth", MAC: hostMAC,
			Flags: up, MTU: 1400, Peer: eth0, PeerNetNS: got.Host.PeerNetNS,
		},
		Container: rtnl.Link{
			Index: eth0, Name: "eth0", Kind: "veth", MAC: podMAC, Flags: up, MTU: 1400, Peer: host, PeerNetNS: got.Container.PeerNetNS,
		},
		Addrs: []rtnl.Addr{
			{Link: eth0, Prefix: netip.MustParsePrefix("10.0.0.1/32"), Flags: unix.IFA_F_PERMANENT | unix.IFA_F_NOPREFIXROUTE},
			{Link: eth0, Prefix: netip.MustParsePrefix("fd00::1/128"), Flags: unix.IFA_F_PERMANENT | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD},
		},
		Routes: []rtnl.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: gw4, Link: eth0, OnLink: true, Protocol: unix.RTPROT_BOOT, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST},
			{Dst: netip.MustParsePrefix("::/0"), Gateway: gw6, Link: eth0, Protocol: unix.RTPROT_BOOT, Metric: 1024, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST},
		},
		Neighs: []rtnl.Neigh{
			{Link: eth0, Addr: gw4, MAC: hostMAC, State: unix.NUD_PERMANENT},
			{Link: eth0, Addr: gw6, MAC: hostMAC, State: unix.NUD_PERMANENT},
		},
	}
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
	put := w.agent.LastPut()
	if put.Began <= 0 {
		t.Error("the agent was not told when the call began")
	}
	put.Began = 0
	wantPut := v1.EndpointRequest{
		Network: "porin", NetNS: ctr.Path(),
		Host:      v1.Interface{Name: v1.HostInterfaceName(ctr.ID, "eth0"), Index: host, MAC: hostText},
		Container: v1.Interface{Name: "eth0", MAC: podText},
	}
	if diff := cmp.Diff(wantPut, put, comparable); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}
