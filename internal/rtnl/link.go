package rtnl

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// rtextFilterSkipStats is RTEXT_FILTER_SKIP_STATS: the counters are most of a link's description.
const rtextFilterSkipStats = 1 << 3

// Link describes an interface.
type Link struct {
	Index     int
	Name      string
	Alias     string
	Kind      string // "veth"; empty for hardware and lo
	MAC       MAC
	Flags     uint32 // IFF_...
	MTU       uint32
	Group     uint32
	Peer      int   // index of the other end of a veth, in its own namespace
	PeerNetNS int32 // the ID that this namespace knows the peer's by; -1 when it is this one
}

// Up says whether packets may pass.
func (l Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// LinkByName reads the interface into link. ENODEV when there is none.
func LinkByName(name string, link *Link) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attrString(unix.IFLA_IFNAME, name)
	return getLink("get link "+name, m, link)
}

// LinkByIndex reads the interface into link. ENODEV when there is none.
func LinkByIndex(index int, link *Link) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: int32(index)})
	return getLink("get link "+strconv.Itoa(index), m, link)
}

func getLink(what string, m message, link *Link) Request {
	m.attrU32(unix.IFLA_EXT_MASK, rtextFilterSkipStats)
	return Request{What: what, Type: unix.RTM_GETLINK, Body: m.bytes(), Answer: func(typ uint16, body []byte) (err error) {
		*link, err = parseLink(body)
		return err
	}}
}

// Links lists the interfaces of the namespace.
func (c *Conn) Links() ([]Link, error) {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attrU32(unix.IFLA_EXT_MASK, rtextFilterSkipStats)
	return list(c, Request{What: "list links", Type: unix.RTM_GETLINK, Body: m.bytes()}, parseLink)
}

// LinkUp brings the interface up.
func LinkUp(index int) Request { return setLinkFlags("bring up", index, unix.IFF_UP) }

// LinkDown takes the interface down: from the answer on, no packet passes it.
func LinkDown(index int) Request { return setLinkFlags("take down", index, 0) }

func setLinkFlags(verb string, index int, flags uint32) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: int32(index), Flags: flags, Change: unix.IFF_UP})
	return Request{What: verb + " link " + strconv.Itoa(index), Type: unix.RTM_SETLINK, Body: m.bytes()}
}

// LinkDownAndGroup takes the interface down and puts it into the group, from which [DelLinkGroup] takes it later with
// others.
func LinkDownAndGroup(index int, group uint32) Request {
	r := LinkDown(index)
	m := message{buf: r.Body}
	m.attrU32(unix.IFLA_GROUP, group)
	r.What, r.Body = "take down and group link "+strconv.Itoa(index), m.bytes()
	return r
}

// SetAlias writes a note for people on the interface, of at most 255 bytes.
func SetAlias(name, alias string) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attrString(unix.IFLA_IFNAME, name)
	m.attr(unix.IFLA_IFALIAS, []byte(alias))
	return Request{What: "set alias of link " + name, Type: unix.RTM_SETLINK, Body: m.bytes()}
}

// SetAliasByIndex is [SetAlias] for an interface whose name another may have taken meanwhile.
func SetAliasByIndex(index int, alias string) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: int32(index)})
	m.attr(unix.IFLA_IFALIAS, []byte(alias))
	return Request{What: "set alias of link " + strconv.Itoa(index), Type: unix.RTM_SETLINK, Body: m.bytes()}
}

// DelLink removes the interface, and the peer of a veth with it. The link is gone and its end notified within 2 ms,
// but the call goes on for up to 30 ms, while it waits for the readers of a whole machine.
func DelLink(index int) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: int32(index)})
	return Request{What: "delete link " + strconv.Itoa(index), Type: unix.RTM_DELLINK, Body: m.bytes()}
}

// DelLinkByName is [DelLink] for whoever has no index, and less safe: another link may have taken the name.
func DelLinkByName(name string) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attrString(unix.IFLA_IFNAME, name)
	return Request{What: "delete link " + name, Type: unix.RTM_DELLINK, Body: m.bytes()}
}

// DelLinkGroup removes every interface of the group, for the waiting time of one. ENODEV when it has none. Group 0 is
// refused, for every interface begins in it.
func DelLinkGroup(group uint32) Request {
	var m message
	m.ifinfo(unix.IfInfomsg{})
	m.attrU32(unix.IFLA_GROUP, group)
	return Request{What: "delete link group " + strconv.FormatUint(uint64(group), 10), Type: unix.RTM_DELLINK, Body: m.bytes()}
}
