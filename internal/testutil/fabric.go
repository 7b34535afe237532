package testutil

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
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
	conn  *rtnl.Conn
	mu    sync.Mutex // guards the field below
	nodes int
}

// NewFabric makes a network without nodes.
func NewFabric(t testing.TB) *Fabric {
	t.Helper()
	ns := NetNS(t)
	f := &Fabric{Namespace: ns, conn: ns.Conn(t)}
	err := f.conn.Do(
		rtnl.AddAddr(1, netip.PrefixFrom(OutsideIPv4, 32)),
		rtnl.AddAddr(1, netip.PrefixFrom(OutsideIPv6, 128)),
	)
	if err != nil {
		t.Fatal(err)
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
func (f *Fabric) join(n *Node) error {
	const nodeEnd = "eth0"
	fabricEnd := fmt.Sprintf("node%d", n.Number)
	fabricMAC, nodeMAC := rtnl.MAC{2, 0, 0, 1, 0, byte(n.Number)}, rtnl.MAC{2, 0, 0, 2, 0, byte(n.Number)}
	var link rtnl.Link
	err := f.conn.Do(
		rtnl.NewVeth(rtnl.Veth{Name: fabricEnd, MAC: fabricMAC, Peer: rtnl.VethPeer{Name: nodeEnd, MAC: nodeMAC, NetNS: n.FD()}}),
		rtnl.LinkByName(fabricEnd, &link),
	)
	if err != nil {
		return err
	}
	if err := n.conn.Do(uplink(link.Peer, fabricMAC, n.IPv4, n.IPv6)...); err != nil {
		return err
	}
	var routes []rtnl.Request
	for _, addr := range []netip.Addr{n.IPv4, n.IPv6} {
		routes = append(routes,
			rtnl.AddRoute(rtnl.Route{Dst: netip.PrefixFrom(addr, addr.BitLen()), Link: link.Index, Scope: unix.RT_SCOPE_LINK}),
			rtnl.ReplaceNeigh(rtnl.Neigh{Link: link.Index, Addr: addr, MAC: nodeMAC}),
		)
	}
	return f.conn.Do(routes...)
}

// uplink configures a node's eth0: everything goes to the fabric.
func uplink(index int, gatewayMAC rtnl.MAC, addrs ...netip.Addr) []rtnl.Request {
	requests := []rtnl.Request{rtnl.LinkUp(index)}
	for _, addr := range addrs {
		gateway, all := netip.MustParseAddr("169.254.0.1"), netip.MustParsePrefix("0.0.0.0/0")
		if addr.Is6() {
			gateway, all = netip.MustParseAddr("fe80::fab"), netip.MustParsePrefix("::/0")
		}
		requests = append(requests,
			rtnl.AddAddr(index, netip.PrefixFrom(addr, addr.BitLen())),
			rtnl.ReplaceNeigh(rtnl.Neigh{Link: index, Addr: gateway, MAC: gatewayMAC}),
			rtnl.AddRoute(rtnl.Route{Dst: all, Gateway: gateway, Link: index, OnLink: addr.Is4()}),
		)
	}
	return requests
}
