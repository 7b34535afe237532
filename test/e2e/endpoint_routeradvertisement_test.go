package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// advertiser is a router on a link of its own to a node, which has its default route from the router's advertisements.
type advertiser struct {
	*wire
	node *testutil.Node
	link netlink.Link // the node's end
}

// The router's addresses on the link.
var (
	routerMAC  = net.HardwareAddr{2, 0, 0, 3, 0, 1}
	routerIPv6 = netip.MustParseAddr("fe80::ad")
)

// newAdvertiser links the router to the node by the node's interface ra0.
func newAdvertiser(t *testing.T, node *testutil.Node) *advertiser {
	t.Helper()
	err := node.Fabric.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "router0", HardwareAddr: routerMAC, Flags: net.FlagUp},
			PeerName:  "ra0", PeerNamespace: netlink.NsFd(node.FD()),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &advertiser{node: node, wire: &wire{t: t, pod: routerMAC, gw: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}}}
	must(t, node.Do(func() (err error) {
		if a.link, err = netlink.LinkByName("ra0"); err != nil {
			return err
		}
		return netlink.LinkSetUp(a.link)
	}))
	must(t, node.Fabric.Do(func() error {
		own, err := netlink.LinkByName("router0")
		if err != nil {
			return err
		}
		a.wire.link = unix.SockaddrLinklayer{Ifindex: own.Attrs().Index, Protocol: htons(unix.ETH_P_ALL)}
		return netlink.LinkSetUp(own)
	}))
	a.open(node.Fabric.Namespace)
	testutil.Eventually(t, a.ready)
	return a
}

// ready returns nil when the node's end has a link-local address: before that the kernel takes no advertisement.
func (a *advertiser) ready() error {
	return a.node.Do(func() error {
		addrs, err := netlink.AddrList(a.link, netlink.FAMILY_V6)
		if err == nil && (len(addrs) == 0 || addrs[0].Flags&unix.IFA_F_TENTATIVE != 0) {
			err = errors.New("ra0 has no link-local address yet")
		}
		return err
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// advertise sends a router advertisement (RFC 4861, section 4.2). A lifetime of 0 withdraws the default route.
func (a *advertiser) advertise(lifetime uint16) {
	a.t.Helper()
	ip := ip6(routerIPv6, netip.MustParseAddr("ff02::1"), layers.IPProtocolICMPv6)
	ip.HopLimit = 255
	header := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeRouterAdvertisement, 0)}
	_ = header.SetNetworkLayerForChecksum(ip)
	a.send(a.frame(a.eth(layers.EthernetTypeIPv6), ip, header, &layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: lifetime}))
}

// wantRoute waits until the node has a default route by the router, or has none.
func (a *advertiser) wantRoute(want bool, when string) {
	a.t.Helper()
	testutil.Eventually(a.t, func() error {
		has := false
		err := a.node.Do(func() error {
			routes, err := netlink.RouteList(a.link, netlink.FAMILY_V6)
			for _, r := range routes {
				has = has || r.Protocol == unix.RTPROT_RA && r.Gw.Equal(routerIPv6.AsSlice())
			}
			return err
		})
		if err == nil && has != want {
			err = fmt.Errorf("%s: the node has the advertised default route: %t, want %t", when, has, want)
		}
		return err
	})
}

// wantSysctl wants a value below /proc/sys/net of the node.
func (a *advertiser) wantSysctl(name, want, when string) {
	a.t.Helper()
	must(a.t, a.node.Do(func() error {
		value, err := os.ReadFile("/proc/sys/net/" + name)
		if got := strings.TrimSpace(string(value)); err == nil && got != want {
			a.t.Errorf("%s: %s = %s, want %s", when, name, got, want)
		}
		return err
	}))
}

func TestAdvertisedDefaultRouteWithIPv4Only(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	router := newAdvertiser(t, node)
	router.advertise(1800)
	router.wantRoute(true, "before the agent")
	r := rigOn(t, node, "--ipam-pod-cidr="+node.PodIPv4.String())
	r.pod()
	router.wantRoute(true, "with an endpoint")
	router.wantSysctl("ipv4/ip_forward", "1", "with an endpoint")
	router.wantSysctl("ipv6/conf/all/forwarding", "0", "with an endpoint")
	router.wantSysctl("ipv6/conf/ra0/accept_ra", "1", "with an endpoint")
	router.wantRefresh("with an endpoint")
	if out, err := r.porin("doctor"); err != nil {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

func TestAdvertisedDefaultRouteWithIPv6(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	router := newAdvertiser(t, node)
	router.advertise(1800)
	router.wantRoute(true, "before the agent")
	r := rigOn(t, node)
	router.wantSysctl("ipv6/conf/all/forwarding", "0", "without an endpoint")
	r.pod()
	for _, when := range []string{"with an endpoint", "after a restart"} {
		router.wantRoute(true, when)
		router.wantSysctl("ipv6/conf/all/forwarding", "1", when)
		router.wantSysctl("ipv6/conf/ra0/accept_ra", "2", when)
		router.wantSysctl("ipv6/conf/all/accept_ra", "1", when)
		router.wantSysctl("ipv6/conf/default/accept_ra", "1", when)
		router.wantSysctl("ipv6/conf/"+r.endpoints()[0].Host.Name+"/accept_ra", "0", when)
		router.wantRefresh(when)
		r.agent.Restart(t)
	}
	if log := r.agent.Log(); !strings.Contains(log, "ifname=ra0") {
		t.Error("the log does not name the interface whose accept_ra was changed")
	}
}

// wantRefresh wants that the node goes on to follow the router.
func (a *advertiser) wantRefresh(when string) {
	a.t.Helper()
	a.advertise(0)
	a.wantRoute(false, when+", withdrawn")
	a.advertise(1800)
	a.wantRoute(true, when+", advertised again")
}
