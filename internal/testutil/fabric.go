package testutil

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the world outside the cluster, which the [Fabric] answers for (RFC 5737, RFC 3849).
var (
	OutsideIPv4 = netip.MustParseAddr("198.51.100.1")
	OutsideIPv6 = netip.MustParseAddr("2001:db8:ffff::1")
)

// Fabric is a namespace that plays the network between nodes, and the world outside. It routes to each node's own
// addresses, and knows nothing of pods.
type Fabric struct {
	*Namespace
	bridge int // index of the bridge that joins the nodes; 0 when the fabric routes between them

	mu    sync.Mutex // guards the field below
	nodes int
}

// Of a LAN: the fabric's own addresses, which lead its nodes to the world.
var (
	lanIPv4 = netip.MustParsePrefix("192.0.2.254/24")
	lanIPv6 = netip.MustParsePrefix("2001:db8::fe/64")
)

// NewLAN makes a network without nodes that joins them on one link, and routes between them and the world outside only.
func NewLAN(t testing.TB) *Fabric {
	t.Helper()
	f := NewFabric(t)
	handle := f.Netlink(t)
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name, bridge.HardwareAddr = "lan", MAC(2, 0, 0, 1, 0, 0)
	err := handle.LinkAdd(bridge)
	for _, addr := range []netip.Prefix{lanIPv4, lanIPv6} {
		err = errors.Join(err, handle.AddrAdd(bridge, lanAddress(addr)))
	}
	if err := errors.Join(err, handle.LinkSetUp(bridge)); err != nil {
		t.Fatalf("make a LAN: %v", err)
	}
	f.bridge = bridge.Attrs().Index
	return f
}

// lanAddress brings the route to its network with it.
func lanAddress(addr netip.Prefix) *netlink.Addr {
	a := Address(addr)
	a.Flags &^= unix.IFA_F_NOPREFIXROUTE
	return a
}

// NewFabric makes a network without nodes.
func NewFabric(t testing.TB) *Fabric {
	t.Helper()
	f := &Fabric{Namespace: NetNS(t)}
	for _, addr := range []netip.Addr{OutsideIPv4, OutsideIPv6} {
		if err := f.Netlink(t).AddrAdd(LinkAt(1), Address(netip.PrefixFrom(addr, addr.BitLen()))); err != nil {
			t.Fatal(err)
		}
	}
	f.Sysctl(t, "net/ipv4/ip_forward", "1")
	f.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	return f
}

// Sysctl writes a file under /proc/sys as the namespace has it.
func (n *Namespace) Sysctl(t testing.TB, name, value string) {
	t.Helper()
	err := n.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
}

// join makes the node's uplink, eth0 with an address of each family and default routes, and the fabric's way to it.
func (f *Fabric) join(t testing.TB, n *Node) error {
	t.Helper()
	fabricMAC, nodeMAC := MAC(2, 0, 0, 1, 0, byte(n.Number)), MAC(2, 0, 0, 2, 0, byte(n.Number))
	link, err := f.AddVeth(Veth{Name: fmt.Sprintf("node%d", n.Number), MAC: fabricMAC, Peer: n.Namespace, PeerName: "eth0", PeerMAC: nodeMAC})
	if err != nil {
		return err
	}
	inside := n.Netlink(t)
	if err := inside.LinkSetUp(LinkAt(link.Attrs().ParentIndex)); err != nil {
		return err
	}
	n.uplink, n.mac = link.Attrs().Index, nodeMAC
	if f.bridge != 0 {
		if err := f.Netlink(t).LinkSetMasterByIndex(link, f.bridge); err != nil {
			return err
		}
	}
	return f.number(t, n, link.Attrs().ParentIndex)
}

// number gives the node's end of its link, which has that index, the node's addresses and default routes.
func (f *Fabric) number(t testing.TB, n *Node, index int) error {
	inside := n.Netlink(t)
	if f.bridge != 0 {
		return errors.Join(
			inside.AddrAdd(LinkAt(index), lanAddress(netip.PrefixFrom(n.IPv4, lanIPv4.Bits()))),
			inside.AddrAdd(LinkAt(index), lanAddress(netip.PrefixFrom(n.IPv6, lanIPv6.Bits()))),
			inside.RouteReplace(GatewayRoute(index, netip.MustParsePrefix("0.0.0.0/0"), lanIPv4.Addr())),
			inside.RouteReplace(GatewayRoute(index, netip.MustParsePrefix("::/0"), lanIPv6.Addr())),
		)
	}
	for _, addr := range []netip.Addr{n.IPv4, n.IPv6} {
		if err := uplink(inside, index, MAC(2, 0, 0, 1, 0, byte(n.Number)), addr); err != nil {
			return err
		}
	}
	return f.routes(n)
}

// Renumber gives a node other addresses in place of its own. In between it has none, and so the kernel removes routes.
func (f *Fabric) Renumber(t testing.TB, n *Node, ipv4, ipv6 netip.Addr) {
	t.Helper()
	eth0, inside := n.Link(t, "eth0"), n.Netlink(t)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addrs, err := inside.AddrList(eth0, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			if a.Scope != unix.RT_SCOPE_UNIVERSE {
				continue
			}
			if err := inside.AddrDel(eth0, &a); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f.bridge == 0 {
		for _, addr := range []netip.Addr{n.IPv4, n.IPv6} {
			if err := f.Netlink(t).RouteDel(HostRoute(n.uplink, addr, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.IPv4, n.IPv6 = ipv4, ipv6
	if err := f.number(t, n, eth0.Attrs().Index); err != nil {
		t.Fatalf("give %s the addresses %s and %s: %v", n.Name, ipv4, ipv6, err)
	}
}

// routes makes the fabric's way to the node's own addresses.
func (f *Fabric) routes(n *Node) error {
	if f.bridge != 0 {
		return nil
	}
	handle, err := f.netlink()
	if err != nil {
		return err
	}
	for _, addr := range []netip.Addr{n.IPv4, n.IPv6} {
		err := errors.Join(
			handle.RouteReplace(HostRoute(n.uplink, addr, 0)),
			handle.NeighSet(PermanentNeighbour(n.uplink, addr, n.mac)),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// RoutePods makes the fabric's way to the pods of the node, as a network does that knows of them.
func (f *Fabric) RoutePods(t testing.TB, n *Node) {
	t.Helper()
	err := errors.Join(
		f.Netlink(t).RouteReplace(GatewayRoute(n.uplink, n.PodIPv4, n.IPv4)),
		f.Netlink(t).RouteReplace(GatewayRoute(n.uplink, n.PodIPv6, n.IPv6)),
	)
	if err != nil {
		t.Fatalf("route to the pods of %s: %v", n.Name, err)
	}
}

// Disconnect takes the node's link down: nothing reaches it, and nothing comes from it. Routes of pods by that link are
// lost.
func (f *Fabric) Disconnect(n *Node) error {
	handle, err := f.netlink()
	if err != nil {
		return err
	}
	return handle.LinkSetDown(LinkAt(n.uplink))
}

// Connect ends Disconnect.
func (f *Fabric) Connect(n *Node) error {
	handle, err := f.netlink()
	if err != nil {
		return err
	}
	if err := handle.LinkSetUp(LinkAt(n.uplink)); err != nil {
		return err
	}
	return f.routes(n)
}

// SetMTU changes the MTU of the node's link, at both ends.
func (f *Fabric) SetMTU(t testing.TB, n *Node, mtu int) {
	t.Helper()
	link, err := n.Netlink(t).LinkByName("eth0")
	if err == nil {
		err = errors.Join(n.Netlink(t).LinkSetMTU(link, mtu), f.Netlink(t).LinkSetMTU(LinkAt(n.uplink), mtu))
	}
	if err != nil {
		t.Fatalf("set the MTU of %s: %v", n.Name, err)
	}
}

// uplink gives a node's eth0 an address, and the node a way through it to everything.
func uplink(node *netlink.Handle, index int, gatewayMAC net.HardwareAddr, addr netip.Addr) error {
	all, gateway, flags := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("169.254.0.1"), int(netlink.FLAG_ONLINK)
	if addr.Is6() {
		all, gateway, flags = netip.MustParsePrefix("::/0"), netip.MustParseAddr("fe80::fab"), 0
	}
	route := GatewayRoute(index, all, gateway)
	route.Flags = flags
	return errors.Join(
		node.AddrAdd(LinkAt(index), Address(netip.PrefixFrom(addr, addr.BitLen()))),
		node.NeighSet(PermanentNeighbour(index, gateway, gatewayMAC)),
		node.RouteReplace(route),
	)
}
