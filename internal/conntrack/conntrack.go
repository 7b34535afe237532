// Package conntrack asks the kernel for a tracked connection, by the addresses and ports of one of its packets (nf_conntrack_netlink).
//
// Package netlink of vishvananda has only the whole table, and a question through the Conn of mdlayher costs ten times as much as the kernel's answer.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Tuple is a packet's source and destination. Of an ICMP echo both ports are its identifier.
type Tuple struct{ Source, Destination netip.AddrPort }

// Reverse is the tuple of an answer.
func (t Tuple) Reverse() Tuple { return Tuple{t.Destination, t.Source} }

// Connection is a tracked connection: the packets of the side that has opened it as they came, and the answers to what they have been translated to.
type Connection struct{ Original, Reply Tuple }

// Socket asks in one network namespace. It is for one goroutine at a time.
type Socket struct {
	conn *netlink.Conn
	raw  syscall.RawConn

	request []byte
	answer  [4096]byte
}

// Open opens a socket in the network namespace that namespace is a file descriptor of; 0 is the calling thread's.
func Open(namespace int) (*Socket, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: namespace})
	if err != nil {
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	return &Socket{conn: conn, raw: raw}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return s.conn.Close() }

// Get finds the connection that the packet belongs to, in either direction; false when none is tracked. Only TCP, UDP, SCTP and echoes are known by more than their
// addresses; isReply says that an echo is an answer.
func (s *Socket) Get(protocol uint8, packet Tuple, isReply bool) (c Connection, found bool, err error) {
	s.request = appendRequest(s.request[:0], protocol, packet, isReply)
	n, err := s.exchange()
	if err == nil {
		c, err = decode(s.answer[:n])
	}
	if errors.Is(err, unix.ENOENT) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("ask for a tracked connection: %w", err)
	}
	return c, true, nil
}

// exchange sends the request and receives the answer, which the kernel has given when the system call returns.
func (s *Socket) exchange() (n int, err error) {
	controlErr := s.raw.Control(func(fd uintptr) {
		if err = unix.Sendto(int(fd), s.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
			n, _, err = unix.Recvfrom(int(fd), s.answer[:], unix.MSG_DONTWAIT)
		}
	})
	if controlErr != nil {
		return 0, controlErr
	}
	return n, err
}
