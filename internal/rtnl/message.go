package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The lengths that netlink begins with.
const (
	headerLen  = unix.SizeofNlMsghdr
	attrHdrLen = unix.SizeofRtAttr
)

// align rounds up to what netlink aligns to.
func align(n int) int { return (n + 3) &^ 3 }

// message puts a request together, in the byte order of the machine. The zero message is empty.
type message struct{ buf []byte }

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
	m.u16s(uint16(i.Family), i.Type) // the family's second byte is padding
	m.u32s(uint32(i.Index), i.Flags, i.Change)
}

// attr appends an attribute and pads it.
func (m *message) attr(typ uint16, value []byte) {
	m.u16s(uint16(attrHdrLen+len(value)), typ)
	m.buf = append(m.buf, value...)
	m.buf = append(m.buf, make([]byte, align(len(value))-len(value))...)
}

func (m *message) attrU32(typ uint16, value uint32) {
	m.attr(typ, binary.NativeEndian.AppendUint32(nil, value))
}

// cut takes one message off a datagram.
func cut(datagram []byte) (typ uint16, seq uint32, body, rest []byte, err error) {
	if len(datagram) < headerLen {
		return 0, 0, nil, nil, errMalformed
	}
	size := int(binary.NativeEndian.Uint32(datagram))
	if size < headerLen || size > len(datagram) {
		return 0, 0, nil, nil, errMalformed
	}
	typ, seq = binary.NativeEndian.Uint16(datagram[4:]), binary.NativeEndian.Uint32(datagram[8:])
	return typ, seq, datagram[headerLen:size], datagram[min(align(size), len(datagram)):], nil
}

// eachAttr calls visit for each attribute.
func eachAttr(attrs []byte, visit func(typ uint16, value []byte)) error {
	for len(attrs) > 0 {
		if len(attrs) < attrHdrLen {
			return errMalformed
		}
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < attrHdrLen || size > len(attrs) {
			return errMalformed
		}
		visit(binary.NativeEndian.Uint16(attrs[2:]), attrs[attrHdrLen:size])
		attrs = attrs[min(align(size), len(attrs)):]
	}
	return nil
}
