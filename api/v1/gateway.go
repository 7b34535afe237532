package v1

import "net/netip"

// The next hops of every container's default routes. They are link-local and on no interface: a permanent neighbour
// entry in the container gives them the MAC of the veth pair's host end, so that no host has to answer ARP (RFC 826)
// or neighbour discovery (RFC 4861). The same in every container, as nothing leaves a point-to-point link.
var (
	GatewayIPv4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	GatewayIPv6 = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: 1})
)
