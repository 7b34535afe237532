package rtnl

import (
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Protocol is the rtm_protocol of the routes that Porin makes in the node's namespace (RTPROT_...). It has no name in the kernel;
// 80 is free in linux/rtnetlink.h and in what iproute2 ships.
const Protocol = 80

// Route is a unicast route of the main table.
type Route struct {
	Dst     netip.Prefix // 0.0.0.0/0 and ::/0 for the default
	Gateway netip.Addr   // next hop; zero for none
	Link    int          // index
	// OnLink takes Gateway for a neighbour on Link though no route says so.
	OnLink   bool
	Scope    uint8      // RT_SCOPE_...; of no meaning for IPv6
	Protocol uint8      // who made it; 0 becomes RTPROT_BOOT
	Source   netip.Addr // what the node takes for its own address on this way; zero leaves it to the kernel
	Metric   uint32
	MTU      uint32 // of this way; 0 for the link's
	Table    uint32 // as read; always the main table when a route is made
	Type     uint8  // as read (RTN_...); always unicast when a route is made
}

// AddRoute makes a route. EEXIST when there is one for the same destination and metric.
func AddRoute(r Route) Request {
	return r.request("add route to ", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

// ReplaceRoute makes a route, in place of the one for the same destination and metric if there is one.
func ReplaceRoute(r Route) Request {
	return r.request("replace route to ", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

// DelRoute removes a route that fits all that r says. ESRCH when there is none.
func DelRoute(r Route) Request { return r.request("delete route to ", unix.RTM_DELROUTE, 0) }

// LocalRoute has the namespace take what is sent to the address, which is the link's. The kernel has such a route of its own
// for each address, but makes the one of an IPv6 address some time after it has answered [AddAddr]: under a load that is
// milliseconds (addrconf_dad_work, also without duplicate address detection), in which packets are dropped. This one is
// beside it, less preferred, from the answer on.
func LocalRoute(link int, addr netip.Addr) Request {
	var m message
	m.u8s(family(addr), uint8(addr.BitLen()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	m.u32s(0)
	m.attr(unix.RTA_DST, addr.AsSlice())
	m.attrU32(unix.RTA_OIF, uint32(link))
	what := "set local route to " + addr.String() + " by link " + strconv.Itoa(link)
	return Request{What: what, Type: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: m.bytes()}
}

func (r Route) request(verb string, typ, flags uint16) Request {
	what := verb + r.Dst.String() + " by link " + strconv.Itoa(r.Link)
	return Request{What: what, Type: typ, Flags: flags, Body: r.body(typ)}
}

func (r Route) body(typ uint16) []byte {
	var m message
	dst := r.Dst.Addr().Unmap()
	proto, nexthop, kind := r.Protocol, uint32(0), uint8(unix.RTN_UNICAST)
	if proto == 0 && typ == unix.RTM_NEWROUTE {
		proto = unix.RTPROT_BOOT
	}
	if r.OnLink {
		nexthop = unix.RTNH_F_ONLINK
	}
	m.u8s(family(dst), uint8(r.Dst.Bits()), 0, 0, unix.RT_TABLE_MAIN, proto, r.Scope, kind)
	m.u32s(nexthop)
	if r.Dst.Bits() > 0 {
		m.attr(unix.RTA_DST, dst.AsSlice())
	}
	m.attrAddr(unix.RTA_GATEWAY, r.Gateway)
	m.attrAddr(unix.RTA_PREFSRC, r.Source)
	m.attrU32(unix.RTA_OIF, uint32(r.Link))
	if r.Metric != 0 {
		m.attrU32(unix.RTA_PRIORITY, r.Metric)
	}
	if r.MTU != 0 {
		m.nest(unix.RTA_METRICS, func() { m.attrU32(unix.RTAX_MTU, r.MTU) })
	}
	return m.bytes()
}

// attrAddr appends an address, unless it is the zero one.
func (m *message) attrAddr(typ uint16, addr netip.Addr) {
	if addr.IsValid() {
		m.attr(typ, addr.Unmap().AsSlice())
	}
}
