package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Of linux/netfilter/nfnetlink_conntrack.h. Kernels before 5.8 have no filter, and list everything.
const (
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE

	filter         = 25 // CTA_FILTER
	filterOriginal = 1  // CTA_FILTER_ORIG_FLAGS
	byProtocol     = 1 << 3
	byDestination  = 1 << 5 // its port
)

// DeleteOpened deletes the connections of a family (AF_INET, AF_INET6) and protocol that match. port is the port that
// they were opened to, or 0 for any. It returns how many it deleted. The kernel walks its whole table, of all network
// namespaces: that takes 11 ms with 262,144 buckets, however few connections there are.
func (s *Socket) DeleteOpened(family, protocol uint8, port uint16, matches func(Connection) bool) (n int, err error) {
	answers, err := s.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: messageGet, Flags: netlink.Request | netlink.Dump}, Data: openedFilter(family, protocol, port),
	})
	if err != nil {
		return 0, fmt.Errorf("list the tracked connections of protocol %d: %w", protocol, err)
	}
	for _, answer := range answers {
		c, number, err := decodeListed(answer.Data)
		if err != nil {
			return n, err
		}
		if number != protocol || port != 0 && c.Original.Destination.Port() != port || !matches(c) {
			continue
		}
		if err := s.delete(protocol, c.Original); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// openedFilter is the body of a request for connections.
func openedFilter(family, protocol uint8, port uint16) []byte {
	b, flags := []byte{family, 0, 0, 0}, uint32(byProtocol)
	b = nested(b, tupleOriginal, func(b []byte) []byte {
		return nested(b, tupleProtocol, func(b []byte) []byte {
			b = appendAttribute(b, protocolNumber, protocol)
			if port != 0 {
				flags |= byDestination
				b = appendPort(b, destinationPort, port)
			}
			return b
		})
	})
	return nested(b, filter, func(b []byte) []byte {
		return appendAttribute(b, filterOriginal, binary.NativeEndian.AppendUint32(nil, flags)...)
	})
}

// decodeListed reads the body of a message of a list, and its protocol.
func decodeListed(body []byte) (c Connection, protocol uint8, err error) {
	if len(body) < headerLength-unix.NLMSG_HDRLEN {
		return c, 0, errAnswer
	}
	err = eachAttribute(body[headerLength-unix.NLMSG_HDRLEN:], func(kind uint16, value []byte) error {
		switch kind {
		case tupleOriginal:
			protocol = protocolOf(value)
			return c.Original.decode(value)
		case tupleReply:
			return c.Reply.decode(value)
		}
		return nil
	})
	return c, protocol, err
}

func protocolOf(tuple []byte) (protocol uint8) {
	_ = eachAttribute(tuple, func(kind uint16, part []byte) error {
		if kind != tupleProtocol {
			return nil
		}
		return eachAttribute(part, func(inner uint16, value []byte) error {
			if inner == protocolNumber && len(value) > 0 {
				protocol = value[0]
			}
			return nil
		})
	})
	return protocol
}

// delete takes a connection that has ended meanwhile for deleted.
func (s *Socket) delete(protocol uint8, original Tuple) error {
	request := appendRequest(nil, protocol, original, false)
	_, err := s.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: messageDelete, Flags: netlink.Request | netlink.Acknowledge}, Data: request[unix.NLMSG_HDRLEN:],
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the tracked connection from %s to %s: %w", original.Source, original.Destination, err)
	}
	return nil
}

// IsUnsupported reports whether the error says that the kernel does not let connections be listed. EINVAL: nfnetlink is
// there, and the module nf_conntrack_netlink is not. EPROTONOSUPPORT: not even that.
func IsUnsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT)
}
