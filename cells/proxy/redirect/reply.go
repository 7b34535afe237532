package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// Destination returns where a datagram was sent to, from the control messages that came with it (IP_ORIGDSTADDR, IPV6_ORIGDSTADDR).
func Destination(control []byte) (netip.AddrPort, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the destination of a datagram: %w", err)
	}
	for _, m := range messages {
		if addr, err := unix.ParseOrigDstAddr(&m); err == nil {
			switch addr := addr.(type) {
			case *unix.SockaddrInet4:
				return netip.AddrPortFrom(netip.AddrFrom4(addr.Addr), uint16(addr.Port)), nil
			case *unix.SockaddrInet6:
				return netip.AddrPortFrom(netip.AddrFrom16(addr.Addr).Unmap(), uint16(addr.Port)), nil
			}
		}
	}
	return netip.AddrPort{}, errors.New("a datagram came without its destination")
}

// DestinationSize is how much room [Destination] needs for control messages.
var DestinationSize = unix.CmsgSpace(unix.SizeofSockaddrInet6)

// Reply sends a datagram to the client, from the address of the server that the client has sent one to.
func (l *Listeners) Reply(server, client netip.AddrPort, payload []byte) error {
	err := l.namespace.do(func() error { return reply(server, client, payload) })
	if err != nil {
		return fmt.Errorf("reply to %s as %s: %w", client, server, err)
	}
	return nil
}

// reply uses a socket of its own. Only the message has the proxy's mark: with a mark of its own, the socket would get what clients send to
// the server while it is there.
func reply(server, client netip.AddrPort, payload []byte) error {
	family := unix.AF_INET
	if server.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := setTransparent(fd, family); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, sockaddr(server)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return os.NewSyscallError("sendmsg", unix.Sendmsg(fd, payload, proxyMark(), sockaddr(client), 0))
}

// ReplyAsNode is [Listeners.Reply] for a server whose address is the node's. Its own socket has that port, so the datagram is sent by one without
// ports (raw(7)).
func (l *Listeners) ReplyAsNode(server, client netip.AddrPort, payload []byte) error {
	err := l.namespace.do(func() error { return replyRaw(server, client, payload) })
	if err != nil {
		return fmt.Errorf("reply to %s as %s: %w", client, server, err)
	}
	return nil
}

func replyRaw(server, client netip.AddrPort, payload []byte) error {
	family := unix.AF_INET
	if server.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(server.Addr(), 0))); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return os.NewSyscallError("sendmsg", unix.Sendmsg(fd, datagram(server, client, payload), proxyMark(), sockaddr(netip.AddrPortFrom(client.Addr(), 0)), 0))
}

// datagram is a payload with the header of UDP.
func datagram(from, to netip.AddrPort, payload []byte) []byte {
	const header, checksum = 8, 6
	b := make([]byte, 0, header+len(payload))
	for _, field := range []uint16{from.Port(), to.Port(), uint16(header + len(payload)), 0} {
		b = binary.BigEndian.AppendUint16(b, field)
	}
	b = append(b, payload...)
	var sum uint32
	add := func(b []byte) {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(from.Addr().AsSlice())
	add(to.Addr().AsSlice())
	add(b)
	for sum += unix.IPPROTO_UDP + uint32(len(b)); sum > 0xffff; {
		sum = sum>>16 + sum&0xffff
	}
	complement := ^uint16(sum)
	if complement == 0 { // 0 stands for no checksum
		complement = 0xffff
	}
	binary.BigEndian.PutUint16(b[checksum:], complement)
	return b
}

// proxyMark is the control message that marks one datagram (SO_MARK).
func proxyMark() []byte {
	message := make([]byte, unix.CmsgSpace(4))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&message[0]))
	header.Level, header.Type = unix.SOL_SOCKET, unix.SO_MARK
	header.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(message[unix.CmsgLen(0):], abi.ProxyMark)
	return message
}

func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
	}
	return &unix.SockaddrInet6{Addr: addr.Addr().As16(), Port: int(addr.Port())}
}
