package rtnl

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

// Direction is a side of a link that filters are attached to, as the parent of a filter (linux/pkt_sched.h).
type Direction uint32

// The directions, seen from the link's own namespace.
const (
	Ingress Direction = 0xfffffff2 // TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)
	Egress  Direction = 0xfffffff3 // TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)
)

func (d Direction) String() string {
	switch d {
	case Ingress:
		return "ingress"
	case Egress:
		return "egress"
	}
	return "parent " + strconv.FormatUint(uint64(d), 16)
}

// What unix lacks of linux/pkt_sched.h and linux/pkt_cls.h.
const (
	clsactHandle = 0xffff0000
	clsactParent = 0xfffffff1

	tcmsgLen = 20

	tcaBPFFD    = 6
	tcaBPFName  = 7
	tcaBPFFlags = 8
	tcaBPFID    = 11

	tcaBPFFlagActDirect = 1
)

// Filter is a BPF classifier in direct-action mode, for every protocol. Link, Direction, Handle and Priority say which
// one; another with the same four takes its place, between two packets.
type Filter struct {
	Link      int
	Direction Direction
	Handle    uint32
	Priority  uint16
	Name      string
	Program   int    // file descriptor of the program, when a filter is made
	ProgramID uint32 // as read
	Kind      string // as read; "bpf", or somebody else's
}

// AddClsact makes the qdisc that filters are attached to, if the link has none. It holds no packets. ENOENT when the
// kernel has no clsact (4.5, CONFIG_NET_SCH_INGRESS), EEXIST when the link has an ingress qdisc instead.
func AddClsact(link int) Request { return clsact("add", link, unix.RTM_NEWQDISC, unix.NLM_F_CREATE) }

// DelClsact removes the qdisc and every filter on it. EINVAL or ENOENT when there is none.
func DelClsact(link int) Request { return clsact("delete", link, unix.RTM_DELQDISC, 0) }

func clsact(verb string, link int, typ, flags uint16) Request {
	var m message
	m.tcmsg(link, clsactHandle, clsactParent, 0)
	m.attrString(unix.TCA_KIND, "clsact")
	return Request{What: verb + " clsact of link " + strconv.Itoa(link), Type: typ, Flags: flags, Body: m.bytes()}
}

// ReplaceFilter attaches a program, in place of the one there if there is one: every packet meets either the old or
// the new one. The link needs [AddClsact] before. ENOENT when the kernel has no BPF classifier (CONFIG_NET_CLS_BPF).
func ReplaceFilter(f Filter) Request {
	m := f.header()
	m.nest(unix.TCA_OPTIONS, func() {
		m.attrU32(tcaBPFFD, uint32(f.Program))
		m.attrString(tcaBPFName, f.Name)
		m.attrU32(tcaBPFFlags, tcaBPFFlagActDirect)
	})
	return f.request("attach", unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, m)
}

// DelFilter detaches a program. EINVAL or ENOENT when there is none.
func DelFilter(f Filter) Request { return f.request("detach", unix.RTM_DELTFILTER, 0, f.header()) }

// GetFilter reads the filter that f names into found. EINVAL or ENOENT when there is none.
func GetFilter(f Filter, found *Filter) Request {
	r := f.request("get", unix.RTM_GETTFILTER, 0, f.header())
	r.Answer = func(_ uint16, body []byte) (err error) {
		*found, err = parseFilter(body)
		return err
	}
	return r
}

func (f Filter) request(verb string, typ, flags uint16, m message) Request {
	what := verb + " filter " + f.Name + " at " + f.Direction.String() + " of link " + strconv.Itoa(f.Link)
	return Request{What: what, Type: typ, Flags: flags, Body: m.bytes()}
}

// header is what names a filter: a struct tcmsg, and the kind.
func (f Filter) header() (m message) {
	protocol := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
	m.tcmsg(f.Link, f.Handle, uint32(f.Direction), uint32(f.Priority)<<16|uint32(protocol))
	m.attrString(unix.TCA_KIND, "bpf")
	return m
}

// Filters lists the filters on one side of the link, of every kind. EINVAL when it has no clsact.
func (c *Conn) Filters(link int, direction Direction) ([]Filter, error) {
	var m message
	m.tcmsg(link, 0, uint32(direction), 0)
	what := "list filters at " + direction.String() + " of link " + strconv.Itoa(link)
	all, err := list(c, Request{What: what, Type: unix.RTM_GETTFILTER, Body: m.bytes()}, parseFilter)
	// Before the filters themselves the kernel names the chain of each kind and priority, with handle 0.
	return filter(all, func(f Filter) bool { return f.Handle != 0 }), err
}

func parseFilter(body []byte) (Filter, error) {
	if len(body) < tcmsgLen {
		return Filter{}, errMalformed
	}
	f := Filter{
		Link:      int(int32(binary.NativeEndian.Uint32(body[4:]))),
		Handle:    binary.NativeEndian.Uint32(body[8:]),
		Direction: Direction(binary.NativeEndian.Uint32(body[12:])),
		Priority:  uint16(binary.NativeEndian.Uint32(body[16:]) >> 16),
	}
	err := eachAttr(body, tcmsgLen, func(typ uint16, value []byte) {
		switch typ {
		case unix.TCA_KIND:
			f.Kind = getString(value)
		case unix.TCA_OPTIONS:
			_ = eachAttr(value, 0, f.option)
		}
	})
	return f, err
}

func (f *Filter) option(typ uint16, value []byte) {
	switch typ {
	case tcaBPFName:
		f.Name = getString(value)
	case tcaBPFID:
		f.ProgramID = getU32(value)
	}
}

// tcmsg appends a struct tcmsg of no family.
func (m *message) tcmsg(link int, handle, parent, info uint32) {
	m.u32s(0, uint32(link), handle, parent, info)
}
