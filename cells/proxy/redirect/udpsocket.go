package redirect

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// UDPSocket sends datagrams to one server. Its methods may be called concurrently.
type UDPSocket struct {
	poll    *poll
	key     uint64 // descriptors are used again, keys are not
	server  netip.AddrPort
	receive func([]byte, error)

	mu sync.Mutex // guards the field below; held while the descriptor is used
	fd int        // -1 when closed
}

func (s *UDPSocket) read(buffer []byte) {
	n, err := s.next(buffer)
	switch {
	case wouldBlock(err), errors.Is(err, net.ErrClosed):
	case err != nil:
		s.receive(nil, os.NewSyscallError("read", err))
	default:
		s.receive(buffer[:n], nil)
	}
}

func (s *UDPSocket) next(buffer []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err := unix.Read(s.fd, buffer)
	if err == nil || errors.Is(err, unix.EINTR) {
		return n, err
	}
	return 0, readErrors(s.fd, s.server.Addr())
}

// Write sends a datagram. It does not wait for room.
func (s *UDPSocket) Write(m []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err := unix.Write(s.fd, m)
	if err != nil && !wouldBlock(err) { // it may be an error of before, which is known once
		n, err = unix.Write(s.fd, m)
	}
	return max(n, 0), os.NewSyscallError("write", err)
}

// Close closes the socket.
func (s *UDPSocket) Close() error {
	s.poll.forgetKey(s.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return os.NewSyscallError("close", err)
}

// connect returns the descriptor of a socket from the client's address to the server's. Package net would need a third
// more system calls.
func (r *Redirect) connect(client Client, server netip.AddrPort) (fd int, err error) {
	namespace, err := r.currentNamespace()
	if err != nil {
		return -1, err
	}
	family := familyOf(server.Addr())
	err = namespace.do(func() error {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return -1, err
	}
	// The socket keeps ICMP errors with who has sent them (ip(7), IP_RECVERR).
	err = errors.Join(transparent(fd, family), setOption(fd, family, unix.IP_RECVERR, unix.IPV6_RECVERR))
	if err == nil {
		err = onAnyPort(client.AddrPort, namespace.half(unix.IPPROTO_UDP, client, server), func(at netip.AddrPort) error { return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))) })
	}
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, sockaddr(server)))
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// maxErrors bounds what is read of them at a time.
const maxErrors = 64

// readErrors reads the errors of a socket that is connected to a server. It returns ECONNREFUSED when the server itself
// has said that the port is closed, and EAGAIN otherwise: other senders may forge it, such as a pod that guesses ports.
func readErrors(fd int, server netip.Addr) error {
	var control [256]byte
	refused := false
	for range maxErrors {
		_, n, _, _, err := unix.Recvmsg(fd, nil, control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			break
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			continue
		}
		for _, m := range messages {
			refused = refused || isRefusal(m, server)
		}
	}
	if refused {
		return unix.ECONNREFUSED
	}
	return unix.EAGAIN
}

// isRefusal reads a struct sock_extended_err, behind which is the address of who has sent the error.
func isRefusal(m unix.SocketControlMessage, server netip.Addr) bool {
	const size = 16
	isError := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR || m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
	if !isError || len(m.Data) < size+2 || syscall.Errno(binary.NativeEndian.Uint32(m.Data)) != unix.ECONNREFUSED {
		return false
	}
	offender, ok := offenderOf(m.Data[size:])
	return ok && offender == server
}

// offenderOf reads a struct sockaddr_in or sockaddr_in6.
func offenderOf(b []byte) (netip.Addr, bool) {
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET && len(b) >= unix.SizeofSockaddrInet4:
		return netip.AddrFrom4([4]byte(b[4:8])), true
	case family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap(), true
	}
	return netip.Addr{}, false
}
