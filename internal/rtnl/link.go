package rtnl

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

// rtextFilterSkipStats is RTEXT_FILTER_SKIP_STATS: the counters are most of a link's description.
const rtextFilterSkipStats = 1 << 3

// Link is what is read of an interface.
type Link struct {
	Index int
	Alias string
}

// LinkByName reads the interface into link. ENODEV when there is none.
func LinkByName(name string, link *Link) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attr(unix.IFLA_IFNAME, append([]byte(name), 0))
	m.attrU32(unix.IFLA_EXT_MASK, rtextFilterSkipStats)
	return Request{what: "get link " + name, typ: unix.RTM_GETLINK, body: m.buf, answer: func(body []byte) (err error) {
		*link, err = parseLink(body)
		return err
	}}
}

// parseLink reads the body of RTM_NEWLINK and RTM_DELLINK.
func parseLink(body []byte) (link Link, err error) {
	if len(body) < unix.SizeofIfInfomsg {
		return Link{}, errMalformed
	}
	link.Index = int(int32(binary.NativeEndian.Uint32(body[4:])))
	err = eachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		if typ == unix.IFLA_IFALIAS {
			text, _, _ := bytes.Cut(value, []byte{0})
			link.Alias = string(text)
		}
	})
	return link, err
}

// LinkDown takes the interface down: from the answer on, no packet passes it.
func LinkDown(index int) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: int32(index), Change: unix.IFF_UP})
	return Request{what: "take down link " + strconv.Itoa(index), typ: unix.RTM_SETLINK, body: m.buf}
}

// LinkDownAndGroup takes the interface down and puts it into the group, from which [DelLinkGroup] takes it later with
// others.
func LinkDownAndGroup(index int, group uint32) Request {
	r := LinkDown(index)
	m := message{r.body}
	m.attrU32(unix.IFLA_GROUP, group)
	r.what, r.body = "take down and group link "+strconv.Itoa(index), m.buf
	return r
}

// DelLink removes the interface, and the peer of a veth with it. The link is gone and its end notified within 2 ms,
// but the call goes on for up to 30 ms, while it waits for the readers of a whole machine.
func DelLink(index int) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: int32(index)})
	return Request{what: "delete link " + strconv.Itoa(index), typ: unix.RTM_DELLINK, body: m.buf}
}

// DelLinkGroup removes every interface of the group, for the waiting time of one. ENODEV when it has none. Group 0 is
// refused, for every interface begins in it; when one of them cannot be deleted, none is.
func DelLinkGroup(group uint32) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attrU32(unix.IFLA_GROUP, group)
	return Request{what: "delete link group " + strconv.FormatUint(uint64(group), 10), typ: unix.RTM_DELLINK, body: m.buf}
}
