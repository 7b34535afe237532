package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The lengths that netlink aligns to and begins with.
const (
	alignTo    = 4
	headerLen  = unix.SizeofNlMsghdr
	attrHdrLen = unix.SizeofRtAttr
)

// message puts a request's body together, in the byte order of the machine. The zero message is empty.
type message struct{ buf []byte }

func (m *message) bytes() []byte { return m.buf }

func (m *message) u8s(values ...uint8) { m.buf = append(m.buf, values...) }

func (m *message) u16s(values ...uint16) {
	for _, v := range values {
		m.buf = binary.NativeEndian.AppendUint16(m.buf, v)
	}
}

func (m *message) u32s(values ...uint32) {
	for _, v := range values {
		m.buf = binary.NativeEndian.AppendUint32(m.buf, v)
	}
}

// ifinfo appends a struct ifinfomsg.
func (m *message) ifinfo(i unix.IfInfomsg) {
	m.u8s(i.Family, 0)
	m.u16s(i.Type)
	m.u32s(uint32(i.Index), i.Flags, i.Change)
}

// attr appends an attribute and pads it.
func (m *message) attr(typ uint16, value []byte) {
	m.u16s(uint16(attrHdrLen+len(value)), typ)
	m.buf = append(m.buf, value...)
	m.pad()
}

func (m *message) attrU32(typ uint16, value uint32) {
	m.attr(typ, binary.NativeEndian.AppendUint32(nil, value))
}

func (m *message) attrString(typ uint16, value string) { m.attr(typ, append([]byte(value), 0)) }

// nest appends an attribute whose value is what fill appends.
func (m *message) nest(typ uint16, fill func()) {
	start := len(m.buf)
	m.u16s(0, typ)
	fill()
	binary.NativeEndian.PutUint16(m.buf[start:], uint16(len(m.buf)-start))
}

func (m *message) pad() {
	for len(m.buf)%alignTo != 0 {
		m.buf = append(m.buf, 0)
	}
}

// frame appends a whole netlink message.
func (m *message) frame(typ, flags uint16, seq uint32, body []byte) {
	m.u32s(uint32(headerLen + len(body)))
	m.u16s(typ, flags)
	m.u32s(seq, 0)
	m.buf = append(m.buf, body...)
	m.pad()
}
