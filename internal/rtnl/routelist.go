package rtnl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Routes lists the unicast routes of the main table that lead to the interface, of both families; 0 for those of all
// interfaces. Routes through several links are left out: Porin makes none.
func (c *Conn) Routes(link int) ([]Route, error) {
	var routes []Route
	var interrupted error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var m message
		m.u8s(family, 0, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.RTN_UNICAST)
		m.u32s(0)
		if link != 0 {
			m.attrU32(unix.RTA_OIF, uint32(link))
		}
		some, err := list(c, Request{What: "list routes", Type: unix.RTM_GETROUTE, Body: m.bytes()}, parseRoute)
		if errors.Is(err, unix.ENOENT) {
			continue // the kernel makes the table with the first route
		}
		if err != nil && !errors.Is(err, ErrInterrupted) {
			return nil, err
		}
		routes, interrupted = append(routes, some...), cmp.Or(interrupted, err)
	}
	return filter(routes, func(r Route) bool {
		return r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST && (link == 0 || r.Link == link)
	}), interrupted
}

// GetRoute reads into found the route that the node takes to the address, with its own destination, which may be wider.
// An errno such as ENETUNREACH when there is none. Rules of the node's may lead it past the main table.
func GetRoute(addr netip.Addr, found *Route) Request {
	var m message
	addr = addr.Unmap()
	m.u8s(family(addr), uint8(addr.BitLen()), 0, 0, 0, 0, 0, 0)
	m.u32s(unix.RTM_F_FIB_MATCH)
	m.attr(unix.RTA_DST, addr.AsSlice())
	what := "get route to " + addr.String()
	return Request{What: what, Type: unix.RTM_GETROUTE, Body: m.bytes(), Answer: func(_ uint16, body []byte) (err error) {
		*found, err = parseRoute(body)
		return err
	}}
}

func parseRoute(body []byte) (Route, error) {
	if len(body) < unix.SizeofRtMsg {
		return Route{}, errMalformed
	}
	r := Route{
		Table: uint32(body[4]), Protocol: body[5], Scope: body[6], Type: body[7],
		OnLink: binary.NativeEndian.Uint32(body[8:])&unix.RTNH_F_ONLINK != 0,
	}
	dst := netip.IPv6Unspecified()
	if body[0] == unix.AF_INET {
		dst = netip.IPv4Unspecified()
	}
	err := eachAttr(body, unix.SizeofRtMsg, func(typ uint16, value []byte) {
		if typ == unix.RTA_DST {
			dst, _ = netip.AddrFromSlice(value)
		}
		r.attr(typ, value)
	})
	r.Dst = netip.PrefixFrom(dst, int(body[1]))
	return r, err
}

func (r *Route) attr(typ uint16, value []byte) {
	switch typ {
	case unix.RTA_GATEWAY:
		r.Gateway, _ = netip.AddrFromSlice(value)
	case unix.RTA_PREFSRC:
		r.Source, _ = netip.AddrFromSlice(value)
	case unix.RTA_OIF:
		r.Link = int(int32(getU32(value)))
	case unix.RTA_PRIORITY:
		r.Metric = getU32(value)
	case unix.RTA_TABLE:
		r.Table = getU32(value)
	case unix.RTA_METRICS:
		_ = eachAttr(value, 0, func(typ uint16, value []byte) {
			if typ == unix.RTAX_MTU {
				r.MTU = getU32(value)
			}
		})
	}
}
