package redirect

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fd"
)

// UDPListener is a listening socket for datagrams, which a [UDPLoop] reads. Its methods may be called concurrently.
type UDPListener struct {
	file *os.File // blocking, so that the runtime's poller does not watch it, nor copies of it in other processes

	mu      sync.Mutex // guards the fields below; held while a datagram is read and passed on
	poll    *poll      // nil unless it is served
	key     uint64
	receive func(Datagram, error)
	closed  bool
	control []byte
}

// listenUDP opens a socket at a loopback address, where no peer can reach it.
func listenUDP(family int) (_ *UDPListener, err error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	u := newUDPListener(os.NewFile(uintptr(fd), "listening socket of the proxy"))
	loopback := netip.IPv6Loopback()
	if family == unix.AF_INET {
		loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	// Datagrams come with the address that they were sent to (ip(7), IP_RECVORIGDSTADDR).
	err = errors.Join(transparent(fd, family), setOption(fd, family, unix.IP_RECVORIGDSTADDR, unix.IPV6_RECVORIGDSTADDR))
	if family == unix.AF_INET6 {
		err = errors.Join(err, os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)))
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(netip.AddrPortFrom(loopback, 0))))
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

func newUDPListener(file *os.File) *UDPListener {
	return &UDPListener{file: file, control: make([]byte, unix.CmsgSpace(unix.SizeofSockaddrInet6))}
}

// SyscallConn implements [syscall.Conn].
func (u *UDPListener) SyscallConn() (syscall.RawConn, error) { return u.file.SyscallConn() }

// serve has the socket read by a thread.
func (u *UDPListener) serve(p *poll, receive func(Datagram, error)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return net.ErrClosed
	}
	u.receive = receive
	key := p.newKey()
	err := fd.Do(u.file, func(fd int) error { return p.add(fd, key, u) })
	if err == nil {
		u.poll, u.key = p, key
	}
	return err
}

// Close closes the socket. When it returns, no datagram is being passed on any more. Copies in other processes stay
// open.
func (u *UDPListener) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return net.ErrClosed
	}
	u.closed = true
	var err error
	if u.poll != nil {
		err = fd.Do(u.file, func(fd int) error { return u.poll.unwatch(fd, u.key) })
	}
	return errors.Join(err, u.file.Close())
}

// read implements reader.
func (u *UDPListener) read(buffer []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	d, err := u.nextLocked(buffer)
	if !wouldBlock(err) {
		u.receive(d, err)
	}
}

func (u *UDPListener) nextLocked(buffer []byte) (d Datagram, _ error) {
	var n, controls int
	var from syscall.Sockaddr
	err := fd.Do(u.file, func(fd int) (err error) { // package unix would ask the kernel for the protocol each time
		n, controls, _, from, err = syscall.Recvmsg(fd, buffer, u.control, unix.MSG_DONTWAIT)
		return os.NewSyscallError("recvmsg", err)
	})
	if err != nil {
		return Datagram{}, err // of one datagram, such as an ICMP error about a reply
	}
	d.Message, d.Client = buffer[:n], addrPort(from)
	if d.Server, err = destination(u.control[:controls]); err != nil {
		return d, fmt.Errorf("datagram from %s: %w", d.Client, err)
	}
	return d, nil
}

// destination returns where a datagram was sent to, from the control messages that came with it (IP_ORIGDSTADDR,
// IPV6_ORIGDSTADDR).
func destination(control []byte) (netip.AddrPort, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read its destination: %w", err)
	}
	for _, m := range messages {
		switch addr, _ := unix.ParseOrigDstAddr(&m); addr := addr.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4(addr.Addr), uint16(addr.Port)), nil
		case *unix.SockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16(addr.Addr).Unmap(), uint16(addr.Port)), nil
		}
	}
	return netip.AddrPort{}, errors.New("it came without its destination")
}

// addrPort returns the zero value for another address than one of IP.
func addrPort(addr syscall.Sockaddr) netip.AddrPort {
	switch addr := addr.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(addr.Addr), uint16(addr.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(addr.Addr).Unmap(), uint16(addr.Port))
	}
	return netip.AddrPort{}
}
