package rtnl

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Neigh is a neighbour entry: the MAC of an address on an interface.
type Neigh struct {
	Link  int // index
	Addr  netip.Addr
	MAC   MAC
	State uint16 // as read (NUD_...); always permanent when an entry is made
}

// ReplaceNeigh makes a permanent neighbour entry: nothing is asked on the link, and it does not age.
func ReplaceNeigh(n Neigh) Request {
	var m message
	m.neigh(n.Link, n.Addr)
	m.attr(unix.NDA_LLADDR, n.MAC[:])
	return Request{
		What:  "set neighbour " + n.Addr.String() + " on link " + strconv.Itoa(n.Link),
		Type:  unix.RTM_NEWNEIGH,
		Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		Body:  m.bytes(),
	}
}

// DelNeigh removes a neighbour entry. ENOENT when there is none.
func DelNeigh(link int, addr netip.Addr) Request {
	var m message
	m.neigh(link, addr)
	return Request{What: "delete neighbour " + addr.String() + " on link " + strconv.Itoa(link), Type: unix.RTM_DELNEIGH, Body: m.bytes()}
}

// GetNeigh reads a neighbour entry into found. ENOENT when there is none. Linux 5.0 and later.
func GetNeigh(link int, addr netip.Addr, found *Neigh) Request {
	var m message
	m.neighIn(link, addr, 0) // a question must not say more
	what := "get neighbour " + addr.String() + " on link " + strconv.Itoa(link)
	return Request{What: what, Type: unix.RTM_GETNEIGH, Body: m.bytes(), Answer: func(_ uint16, body []byte) (err error) {
		*found, err = parseNeigh(body)
		return err
	}}
}

// neigh appends a struct ndmsg and the address.
func (m *message) neigh(link int, addr netip.Addr) { m.neighIn(link, addr, unix.NUD_PERMANENT) }

func (m *message) neighIn(link int, addr netip.Addr, state uint16) {
	addr = addr.Unmap()
	m.u8s(family(addr), 0, 0, 0)
	m.u32s(uint32(link))
	m.u16s(state)
	m.u8s(0, 0)
	m.attr(unix.NDA_DST, addr.AsSlice())
}

// Neighs lists the neighbour entries of the interface, of both families; 0 for those of all interfaces.
func (c *Conn) Neighs(link int) ([]Neigh, error) {
	var m message
	m.u8s(unix.AF_UNSPEC, 0, 0, 0)
	m.u32s(0, 0)
	if link != 0 {
		m.attrU32(unix.NDA_IFINDEX, uint32(link))
	}
	all, err := list(c, Request{What: "list neighbours", Type: unix.RTM_GETNEIGH, Body: m.bytes()}, parseNeigh)
	return filter(all, func(n Neigh) bool { return link == 0 || n.Link == link }), err
}

func parseNeigh(body []byte) (Neigh, error) {
	if len(body) < unix.SizeofNdMsg {
		return Neigh{}, errMalformed
	}
	n := Neigh{Link: int(int32(binary.NativeEndian.Uint32(body[4:]))), State: binary.NativeEndian.Uint16(body[8:])}
	err := eachAttr(body, unix.SizeofNdMsg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NDA_DST:
			n.Addr, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			copy(n.MAC[:], value)
		}
	})
	return n, err
}
