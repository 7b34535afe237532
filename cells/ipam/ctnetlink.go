package ipam

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// What linux/netfilter/nfnetlink_conntrack.h and net/netfilter/nf_internals.h call the parts of a message.
const (
	ctGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	ctNew = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW

	ctTupleOrig  = 1  // CTA_TUPLE_ORIG
	ctTupleReply = 2  // CTA_TUPLE_REPLY
	ctFilter     = 25 // CTA_FILTER; in it CTA_FILTER_ORIG_FLAGS and CTA_FILTER_REPLY_FLAGS have the numbers of the tuples

	ctTupleIP = 1 // CTA_TUPLE_IP
	ctV4Src   = 1 // CTA_IP_V4_SRC
	ctV6Src   = 3 // CTA_IP_V6_SRC

	ctFilterSrc = 1 // CTA_FILTER_F_CTA_IP_SRC
)

const (
	nlHeader   = unix.SizeofNlMsghdr
	nfgenLen   = 4 // struct nfgenmsg
	attrHeader = unix.SizeofRtAttr
	attrType   = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// ctDump asks for all connections of a family, or of both.
func ctDump(seq uint32, family byte) []byte {
	return ctMessage(ctGet, unix.NLM_F_DUMP, seq, family, nil)
}

// ctFiltered asks for the connections whose packets of a direction come from an IPv4 address. Linux turns the filter round
// for an IPv6 address, at least up to 6.18 (ctnetlink_filter_match_tuple), and sends all others.
func ctFiltered(seq uint32, addr netip.Addr, direction uint16) []byte {
	flags := binary.NativeEndian.AppendUint32(nil, ctFilterSrc)
	body := nest(nil, direction, nest(nil, ctTupleIP, attr(nil, ctSrc(addr), addr.AsSlice())))
	body = nest(body, ctFilter, attr(nil, direction, flags))
	return ctMessage(ctGet, unix.NLM_F_DUMP, seq, unix.AF_INET, body)
}

// ctMessage is a whole message about connections of a family.
func ctMessage(typ, flags uint16, seq uint32, family byte, body []byte) []byte {
	msg := binary.NativeEndian.AppendUint32(nil, uint32(nlHeader+nfgenLen+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, typ)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|flags)
	msg = binary.NativeEndian.AppendUint32(msg, seq)
	msg = binary.NativeEndian.AppendUint32(msg, 0)
	return append(append(msg, family, unix.NFNETLINK_V0, 0, 0), body...)
}

func ctSrc(addr netip.Addr) uint16 {
	if addr.Is4() {
		return ctV4Src
	}
	return ctV6Src
}

// attr appends an attribute and pads it.
func attr(to []byte, typ uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(attrHeader+len(value)))
	to = binary.NativeEndian.AppendUint16(to, typ)
	to = append(to, value...)
	return append(to, make([]byte, -len(value)&3)...)
}

func nest(to []byte, typ uint16, value []byte) []byte { return attr(to, typ|unix.NLA_F_NESTED, value) }

// ctRead calls visit with where the packets of each connection in one datagram come from, of either direction, and tells
// whether the answer ends there. What is malformed ends it.
func ctRead(datagram []byte, seq uint32, visit func(from netip.Addr)) (done bool) {
	for len(datagram) >= nlHeader {
		size := int(binary.NativeEndian.Uint32(datagram))
		if size < nlHeader || size > len(datagram) {
			return true
		}
		typ, answers := binary.NativeEndian.Uint16(datagram[4:]), binary.NativeEndian.Uint32(datagram[8:]) == seq
		if answers && (typ == unix.NLMSG_DONE || typ == unix.NLMSG_ERROR) {
			return true
		}
		if answers && typ == ctNew && size >= nlHeader+nfgenLen {
			attrs := datagram[nlHeader+nfgenLen : size]
			visit(ctFrom(attrs, ctTupleOrig))
			visit(ctFrom(attrs, ctTupleReply))
		}
		datagram = datagram[min((size+3)&^3, len(datagram)):]
	}
	return false
}

// ctFrom is where packets of a direction come from; zero when that is not told.
func ctFrom(attrs []byte, direction uint16) (from netip.Addr) {
	ip := find(find(attrs, direction), ctTupleIP)
	if addr, ok := netip.AddrFromSlice(find(ip, ctV4Src)); ok {
		return addr
	}
	from, _ = netip.AddrFromSlice(find(ip, ctV6Src))
	return from
}

// find returns the value of the first attribute of a type, or nil.
func find(attrs []byte, want uint16) []byte {
	for len(attrs) >= attrHeader {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < attrHeader || size > len(attrs) {
			return nil
		}
		if binary.NativeEndian.Uint16(attrs[2:])&attrType == want {
			return attrs[attrHeader:size]
		}
		attrs = attrs[min((size+3)&^3, len(attrs)):]
	}
	return nil
}
