package nl

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Protocol marks the routes and rules that Porin makes (rtm_protocol, RTPROT_...). It has no name in the kernel; 80 is
// free in linux/rtnetlink.h and in what iproute2 ships.
const Protocol = 80

// LinkAt names an interface by its index, for functions of the library that need no more of it.
func LinkAt(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// IPNet is the prefix as the library has it.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// HostNet is the prefix of the address alone, as the library has it.
func HostNet(addr netip.Addr) *net.IPNet { return IPNet(netip.PrefixFrom(addr, addr.BitLen())) }

// Prefix is what the library has as a network; the zero prefix for none.
func Prefix(network *net.IPNet) netip.Prefix {
	if network == nil {
		return netip.Prefix{}
	}
	bits, _ := network.Mask.Size()
	return netip.PrefixFrom(Addr(network.IP), bits)
}

// Addr is what the library has as an address; the zero address for none.
func Addr(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// FamilyOf is the address family, of netlink and of sockets.
func FamilyOf(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// Clsact is the qdisc of a link that filters are attached to. It holds no packets.
func Clsact(link int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}
