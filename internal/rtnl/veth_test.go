package rtnl_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

var (
	hostMAC = rtnl.MAC{2, 0, 0, 0, 0, 1}
	podMAC  = rtnl.MAC{2, 0, 0, 0, 0, 2}
)

// pair makes a veth pair between two fresh namespaces.
func pair(t *testing.T) (node, pod *rtnl.Conn, host rtnl.Link) {
	t.Helper()
	nodeNS, podNS := testutil.NetNS(t), testutil.NetNS(t)
	node, pod = nodeNS.Conn(t), podNS.Conn(t)
	err := node.Do(
		rtnl.NewVeth(rtnl.Veth{
			Name: "por0", MAC: hostMAC, Group: 7, MTU: 1400,
			Peer: rtnl.VethPeer{Name: "eth0", MAC: podMAC, NetNS: podNS.FD()},
		}),
		rtnl.SetAlias("por0", "c1:eth0"),
		rtnl.LinkByName("por0", &host),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pod.Do(rtnl.LinkUp(host.Peer)), node.Do(rtnl.LinkByIndex(host.Index, &host))); err != nil {
		t.Fatal(err)
	}
	return node, pod, host
}

func TestVethIsInBothNamespacesAtOnce(t *testing.T) {
	_, pod, host := pair(t)
	var eth0 rtnl.Link
	if err := pod.Do(rtnl.LinkByName("eth0", &eth0)); err != nil {
		t.Fatal(err)
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP | unix.IFF_BROADCAST | unix.IFF_MULTICAST
	wantHost := rtnl.Link{
		Index: host.Index, Name: "por0", Alias: "c1:eth0", Kind: "veth", MAC: hostMAC, Flags: up,
		MTU: 1400, Group: 7, Peer: eth0.Index, PeerNetNS: host.PeerNetNS,
	}
	if diff := cmp.Diff(wantHost, host); diff != "" {
		t.Errorf("host end (-want +got):\n%s", diff)
	}
	wantPod := rtnl.Link{
		Index: eth0.Index, Name: "eth0", Kind: "veth", MAC: podMAC, Flags: up,
		MTU: 1400, Peer: host.Index, PeerNetNS: eth0.PeerNetNS,
	}
	if diff := cmp.Diff(wantPod, eth0); diff != "" {
		t.Errorf("container end (-want +got):\n%s", diff)
	}
}

func TestAnAliasIsChangedByIndexToo(t *testing.T) {
	node, _, host := pair(t)
	longest := strings.Repeat("a", 255)
	if err := node.Do(rtnl.SetAliasByIndex(host.Index, longest), rtnl.LinkByName("por0", &host)); err != nil || host.Alias != longest {
		t.Errorf("alias %q, %v", host.Alias, err)
	}
	if err := node.Do(rtnl.SetAliasByIndex(host.Index, longest+"a")); err == nil {
		t.Error("the kernel takes 256 bytes")
	}
	if err := node.Do(rtnl.SetAliasByIndex(9999, "a")); !errors.Is(err, unix.ENODEV) {
		t.Errorf("error %v", err)
	}
}

func TestALocalRouteHasAnAddressTakenAtOnce(t *testing.T) {
	_, pod, host := pair(t)
	for i := range 50 { // the kernel's own comes late now and then
		addr := netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)})
		var way rtnl.Route
		err := pod.Do(
			rtnl.AddAddr(host.Peer, netip.PrefixFrom(addr, 128)), rtnl.LocalRoute(host.Peer, addr), rtnl.LocalRoute(host.Peer, addr),
			rtnl.GetRoute(addr, &way),
		)
		if err != nil || way.Type != unix.RTN_LOCAL {
			t.Errorf("%s: %+v, %v", addr, way, err)
		}
	}
	if routes, err := pod.Routes(host.Peer); err != nil || slices.ContainsFunc(routes, func(r rtnl.Route) bool { return r.Dst.Bits() == 128 }) {
		t.Errorf("it is listed among those that lead elsewhere: %+v, %v", routes, err)
	}
}

func TestTakenNameIsAnErrorThatNamesTheRequest(t *testing.T) {
	node, _, _ := pair(t)
	other := testutil.NetNS(t)
	var host rtnl.Link
	err := node.Do(
		rtnl.NewVeth(rtnl.Veth{Name: "por0", MAC: hostMAC, Peer: rtnl.VethPeer{Name: "eth1", MAC: podMAC, NetNS: other.FD()}}),
		rtnl.LinkByName("por9", &host),
	)
	if !errors.Is(err, unix.EEXIST) || !errors.Is(err, unix.ENODEV) {
		t.Errorf("error = %v, want both of the batch", err)
	}
	if text := err.Error(); !strings.Contains(text, "create veth por0") || !strings.Contains(text, "; get link por9") {
		t.Errorf("error = %q, want it to name the requests", text)
	}
	if links, _ := other.Conn(t).Links(); len(links) != 1 {
		t.Errorf("links left by a failed request: %+v", links)
	}
}

func TestKernelsOwnWordsAreInTheError(t *testing.T) {
	node, _, host := pair(t)
	err := node.Do(rtnl.AddRoute(rtnl.Route{
		Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Link: host.Index,
	}))
	if !errors.Is(err, unix.ENETUNREACH) || !strings.Contains(err.Error(), "(Nexthop has invalid gateway)") {
		t.Errorf("error = %v, want ENETUNREACH and the extended acknowledgement", err)
	}
}

func TestLinksGoDownAndAway(t *testing.T) {
	node, pod, host := pair(t)
	if err := node.Do(rtnl.LinkDownAndGroup(host.Index, 4242)); err != nil {
		t.Fatal(err)
	}
	if err := node.Do(rtnl.LinkByIndex(host.Index, &host)); err != nil || host.Up() || host.Group != 4242 {
		t.Errorf("after LinkDownAndGroup: %+v, %v", host, err)
	}
	if err := node.Do(rtnl.DelLinkGroup(4242)); err != nil {
		t.Fatal(err)
	}
	if links, _ := pod.Links(); len(links) != 1 {
		t.Errorf("links in the container after the host end is deleted: %+v", links)
	}
	for _, again := range []rtnl.Request{rtnl.DelLink(host.Index), rtnl.DelLinkByName("por0"), rtnl.DelLinkGroup(4242), rtnl.LinkUp(host.Index)} {
		if err := node.Do(again); !errors.Is(err, unix.ENODEV) {
			t.Errorf("%s: %v, want ENODEV", again.What, err)
		}
	}
}
