package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Messages and attributes of linux/netfilter/nfnetlink_conntrack.h.
const (
	messageGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET

	tupleOriginal = 1 // CTA_TUPLE_ORIG
	tupleReply    = 2 // CTA_TUPLE_REPLY

	tupleAddresses = 1 // CTA_TUPLE_IP
	tupleProtocol  = 2 // CTA_TUPLE_PROTO

	source4, destination4 = 1, 2 // CTA_IP_V4_SRC, CTA_IP_V4_DST
	source6, destination6 = 3, 4 // CTA_IP_V6_SRC, CTA_IP_V6_DST

	protocolNumber, sourcePort, destinationPort = 1, 2, 3 // CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT
	icmpID, icmpType, icmpCode                  = 4, 5, 6 // CTA_PROTO_ICMP_ID, _TYPE, _CODE
	icmp6ID, icmp6Type, icmp6Code               = 7, 8, 9 // CTA_PROTO_ICMPV6_ID, _TYPE, _CODE
)

// The types of an echo.
const (
	echoRequest, echoReply   = 8, 0
	echo6Request, echo6Reply = 128, 129
)

// headerLength is the size of struct nlmsghdr and struct nfgenmsg, and attributeLength the size of struct nlattr.
const (
	headerLength    = unix.NLMSG_HDRLEN + 4
	attributeLength = unix.NLA_HDRLEN
)

var errAnswer = errors.New("the kernel's answer is malformed")

func appendRequest(b []byte, protocol uint8, packet Tuple, isReply bool) []byte {
	family, source, destination := byte(unix.AF_INET6), uint16(source6), uint16(destination6)
	if packet.Source.Addr().Is4() {
		family, source, destination = unix.AF_INET, source4, destination4
	}
	b = append(b, make([]byte, headerLength)...)
	b[unix.NLMSG_HDRLEN] = family
	b = nested(b, tupleOriginal, func(b []byte) []byte {
		b = nested(b, tupleAddresses, func(b []byte) []byte {
			b = appendAttribute(b, source, packet.Source.Addr().AsSlice()...)
			return appendAttribute(b, destination, packet.Destination.Addr().AsSlice()...)
		})
		return nested(b, tupleProtocol, func(b []byte) []byte {
			b = appendAttribute(b, protocolNumber, protocol)
			return appendPorts(b, protocol, packet, isReply)
		})
	})
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], messageGet)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	return b
}

func appendPorts(b []byte, protocol uint8, packet Tuple, isReply bool) []byte {
	echo := func(id, kind, code uint16, request, reply uint8) []byte {
		if isReply {
			request = reply
		}
		b = appendPort(b, id, packet.Source.Port())
		b = appendAttribute(b, kind, request)
		return appendAttribute(b, code, 0)
	}
	switch protocol {
	case unix.IPPROTO_ICMP:
		return echo(icmpID, icmpType, icmpCode, echoRequest, echoReply)
	case unix.IPPROTO_ICMPV6:
		return echo(icmp6ID, icmp6Type, icmp6Code, echo6Request, echo6Reply)
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		b = appendPort(b, sourcePort, packet.Source.Port())
		return appendPort(b, destinationPort, packet.Destination.Port())
	}
	return b
}

func appendPort(b []byte, kind, port uint16) []byte {
	return appendAttribute(b, kind, byte(port>>8), byte(port))
}

// appendAttribute pads the value to four bytes.
func appendAttribute(b []byte, kind uint16, value ...byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attributeLength+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%unix.NLA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

func nested(b []byte, kind uint16, content func([]byte) []byte) []byte {
	start := len(b)
	b = appendAttribute(b, kind|unix.NLA_F_NESTED)
	b = content(b)
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

// decode returns the connection of the kernel's answer, or its error.
func decode(answer []byte) (c Connection, err error) {
	if len(answer) < headerLength {
		return c, errAnswer
	}
	if binary.NativeEndian.Uint16(answer[4:]) == unix.NLMSG_ERROR {
		return c, unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])))
	}
	length := min(len(answer), int(binary.NativeEndian.Uint32(answer)))
	err = eachAttribute(answer[headerLength:max(length, headerLength)], func(kind uint16, value []byte) error {
		switch kind {
		case tupleOriginal:
			return c.Original.decode(value)
		case tupleReply:
			return c.Reply.decode(value)
		}
		return nil
	})
	return c, err
}

func (t *Tuple) decode(tuple []byte) error {
	var source, destination netip.Addr
	var from, to uint16
	err := eachAttribute(tuple, func(kind uint16, part []byte) error {
		return eachAttribute(part, func(inner uint16, value []byte) error {
			switch {
			case kind == tupleAddresses && (inner == source4 || inner == source6):
				source, _ = netip.AddrFromSlice(value)
			case kind == tupleAddresses && (inner == destination4 || inner == destination6):
				destination, _ = netip.AddrFromSlice(value)
			case kind == tupleProtocol && len(value) == 2:
				switch port := binary.BigEndian.Uint16(value); inner {
				case sourcePort:
					from = port
				case destinationPort:
					to = port
				case icmpID, icmp6ID:
					from, to = port, port
				}
			}
			return nil
		})
	})
	t.Source, t.Destination = netip.AddrPortFrom(source, from), netip.AddrPortFrom(destination, to)
	return err
}

func eachAttribute(b []byte, f func(kind uint16, value []byte) error) error {
	for len(b) >= attributeLength {
		length := int(binary.NativeEndian.Uint16(b))
		if length < attributeLength || length > len(b) {
			return errAnswer
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[attributeLength:length]); err != nil {
			return err
		}
		b = b[min(len(b), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return nil
}
