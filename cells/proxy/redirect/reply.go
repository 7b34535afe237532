package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fd"
)

// replySockets send datagrams from the addresses and ports of servers. They are sockets without ports (raw(7)): one
// with the port of a server would get what others send to that, and there are none for ports that a server of the node
// has.
type replySockets struct {
	v4, v6 *os.File // blocking, which keeps the runtime's poller away; v6 is nil without IPv6
}

// discardAddress is of a range for packets to nowhere (RFC 6666).
var discardAddress = netip.MustParseAddr("100::1")

// openReplySockets opens the sockets in the namespace of the thread.
func openReplySockets() (r replySockets, err error) {
	if r.v4, err = rawSocket(unix.AF_INET, dummyAddress); err != nil {
		return r, fmt.Errorf("open a socket for replies: %w", err)
	}
	if r.v6, err = rawSocket(unix.AF_INET6, discardAddress); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return r, errors.Join(fmt.Errorf("open a socket for replies: %w", err), r.close())
	}
	return r, nil
}

// rawSocket has an address without senders: otherwise it would get a copy of each datagram that reaches the node.
func rawSocket(family int, addr netip.Addr) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err = transparent(fd, family); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(netip.AddrPortFrom(addr, 0))))
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "socket for replies of the proxy"), nil
}

func (r replySockets) close() error {
	var errs []error
	for _, file := range []*os.File{r.v4, r.v6} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return closed(errs...)
}

// Reply sends a datagram to the client, from the address of the server that the client has sent one to. It does not
// block: a datagram for which there is no room is lost, as in a network.
func (l *Listeners) Reply(server, client netip.AddrPort, payload []byte) error {
	file, source := l.replies.v4, sourceIPv4
	if server.Addr().Is6() {
		file, source = l.replies.v6, sourceIPv6
	}
	if file == nil {
		return fmt.Errorf("reply to %s as %s: no IPv6", client, server)
	}
	err := fd.Do(file, func(fd int) error {
		to := sockaddr(netip.AddrPortFrom(client.Addr(), 0))
		return os.NewSyscallError("sendmsg", unix.Sendmsg(fd, datagram(server, client, payload), source(server.Addr()), to, unix.MSG_DONTWAIT))
	})
	if err != nil {
		return fmt.Errorf("reply to %s as %s: %w", client, server, err)
	}
	return nil
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

// sourceIPv4 is the control message that says where a datagram comes from (IP_PKTINFO; ip(7)): the index of a device,
// the source, an address that is ignored.
func sourceIPv4(addr netip.Addr) []byte {
	return controlMessage(unix.SOL_IP, unix.IP_PKTINFO, append(append(make([]byte, 4), addr.AsSlice()...), make([]byte, 4)...))
}

// sourceIPv6 is [sourceIPv4] of IPv6 (IPV6_PKTINFO; RFC 3542, section 6.1): the source, and the index of a device.
func sourceIPv6(addr netip.Addr) []byte {
	return controlMessage(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(addr.AsSlice(), make([]byte, 4)...))
}

func controlMessage(level, kind int32, data []byte) []byte {
	message := make([]byte, unix.CmsgSpace(len(data)))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&message[0]))
	header.Level, header.Type = level, kind
	header.SetLen(unix.CmsgLen(len(data)))
	copy(message[unix.CmsgLen(0):], data)
	return message
}

func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
	}
	return &unix.SockaddrInet6{Addr: addr.Addr().As16(), Port: int(addr.Port())}
}
