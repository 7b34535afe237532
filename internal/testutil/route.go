package testutil

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// RouteProtocol is the rtm_protocol that marks the routes that Porin makes on a node.
const RouteProtocol netlink.RouteProtocol = 80

// HostRoute is a route to one address by the interface.
func HostRoute(link int, addr netip.Addr, protocol netlink.RouteProtocol) *netlink.Route {
	return &netlink.Route{
		LinkIndex: link, Dst: nl.HostNet(addr), Scope: netlink.SCOPE_LINK, Protocol: protocol,
	}
}

// GatewayRoute is a route by a gateway on the interface.
func GatewayRoute(link int, dst netip.Prefix, gateway netip.Addr) *netlink.Route {
	return &netlink.Route{LinkIndex: link, Dst: nl.IPNet(dst), Gw: gateway.AsSlice()}
}

// PermanentNeighbour is a permanent neighbour entry.
func PermanentNeighbour(link int, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: link, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}
}

// Address is an address of an interface that is usable at once (no duplicate address detection) and brings no route to
// its network with it.
func Address(prefix netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: nl.IPNet(prefix), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
}
