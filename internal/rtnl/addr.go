package rtnl

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Addr is an address of an interface.
type Addr struct {
	Link   int          // index
	Prefix netip.Prefix // the address, and how much of it is the network
	Scope  uint8        // RT_SCOPE_...
	Flags  uint32       // IFA_F_...
}

// AddAddr gives the interface an address. It is usable at once (IPv6: no duplicate address detection, for nobody else
// is on the link; but see [LocalRoute]) and brings no route to its network with it. EEXIST when the interface has it.
func AddAddr(link int, prefix netip.Prefix) Request {
	return addrRequest("add address ", link, prefix, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

// ReplaceAddr is [AddAddr] that lets an address be which the interface has.
func ReplaceAddr(link int, prefix netip.Prefix) Request {
	return addrRequest("set address ", link, prefix, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

// DelAddr takes an address from the interface. EADDRNOTAVAIL when it has none such.
func DelAddr(link int, prefix netip.Prefix) Request {
	return addrRequest("delete address ", link, prefix, unix.RTM_DELADDR, 0)
}

func addrRequest(verb string, link int, prefix netip.Prefix, typ, flags uint16) Request {
	var m message
	addr := prefix.Addr().Unmap()
	m.u8s(family(addr), uint8(prefix.Bits()), 0, unix.RT_SCOPE_UNIVERSE)
	m.u32s(uint32(link))
	m.attr(unix.IFA_LOCAL, addr.AsSlice())
	if addr.Is4() {
		m.attr(unix.IFA_ADDRESS, addr.AsSlice())
	}
	if typ == unix.RTM_NEWADDR {
		m.attrU32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)
	}
	what := verb + prefix.String() + " of link " + strconv.Itoa(link)
	return Request{What: what, Type: typ, Flags: flags, Body: m.bytes()}
}

// Addrs lists the addresses of the interface, of both families; 0 for those of all interfaces.
func (c *Conn) Addrs(link int) ([]Addr, error) {
	var m message
	m.u8s(unix.AF_UNSPEC, 0, 0, 0)
	m.u32s(uint32(link))
	all, err := list(c, Request{What: "list addresses", Type: unix.RTM_GETADDR, Body: m.bytes()}, parseAddr)
	return filter(all, func(a Addr) bool { return link == 0 || a.Link == link }), err
}

func parseAddr(body []byte) (Addr, error) {
	if len(body) < unix.SizeofIfAddrmsg {
		return Addr{}, errMalformed
	}
	a := Addr{Flags: uint32(body[2]), Scope: body[3], Link: int(binary.NativeEndian.Uint32(body[4:]))}
	var local, peer netip.Addr
	err := eachAttr(body, unix.SizeofIfAddrmsg, func(typ uint16, value []byte) {
		switch typ {
		case unix.IFA_LOCAL: // the own address of IPv4, and of IPv6 when the link has a peer address
			local, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			peer, _ = netip.AddrFromSlice(value)
		case unix.IFA_FLAGS:
			a.Flags = getU32(value)
		}
	})
	if !local.IsValid() {
		local = peer
	}
	a.Prefix = netip.PrefixFrom(local, int(body[1]))
	return a, err
}

func family(addr netip.Addr) uint8 {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// filter keeps what the kernel would have, had it not been too old to filter a list itself (before 4.20).
func filter[T any](all []T, keep func(T) bool) (kept []T) {
	for _, item := range all {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
