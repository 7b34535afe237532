// Package conntrack looks up a tracked connection in the kernel, by the addresses and ports of one of its packets
// (nf_conntrack_netlink).
//
// vishvananda/netlink can only list the whole table. mdlayher/netlink opens the socket here; its Conn.Execute takes ten
// times as long as the kernel.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
)

// Tuple is a packet's source and destination. Of an ICMP echo both ports are its identifier.
type Tuple struct{ Source, Destination netip.AddrPort }

// Reverse is the tuple of a reply.
func (t Tuple) Reverse() Tuple { return Tuple{t.Destination, t.Source} }

// Connection is a tracked connection. Original is a packet of the side that opened it, before translation. Reply is a
// packet of the other side, as it comes in: so its source is where Original was translated to.
type Connection struct{ Original, Reply Tuple }

// Socket looks up connections in one network namespace. It is for one goroutine at a time.
type Socket struct {
	conn *netlink.Conn
	raw  syscall.RawConn

	request []byte
	answer  [4096]byte
}

// Open opens a socket in a network namespace, given as a file descriptor; 0 stands for the calling thread's.
func Open(namespace int) (*Socket, error) {
	if namespace == 0 {
		return open()
	}
	socket, err := netns.Call(namespace, open) // not by the library, which drops the error of the socket there
	if err != nil && socket != nil {           // the thread did not return
		_ = socket.Close()
		socket = nil
	}
	return socket, err
}

func open() (*Socket, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
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

// Get looks up the connection of a packet, in either direction; found is false when none is tracked. The ports count
// for TCP, UDP, SCTP and ICMP echo only. isReply is for ICMP echo: the packet is a reply.
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

// exchange sends the request and receives the answer, which is there when the first system call returns.
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
