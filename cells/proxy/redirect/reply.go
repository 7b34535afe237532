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
