package redirect

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// UDPSocket sends datagrams to one server. Its methods may be called concurrently.
type UDPSocket struct {
	poll    *poll
	key     uint64 // descriptors are used again, keys are not
	receive func([]byte)

	mu sync.Mutex // guards the field below; held while the descriptor is used
	fd int        // -1 when closed
}

func (s *UDPSocket) read(buffer []byte) {
	if n, err := s.next(buffer); err == nil { // an error may be one of ICMP, which a pod that guesses ports can forge
		s.receive(buffer[:n])
	}
}

func (s *UDPSocket) next(buffer []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	return unix.Read(s.fd, buffer)
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
	s.poll.removeKey(s.key)
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
	if err = transparent(fd, family); err == nil {
		err = onAnyPort(client.AddrPort, half(client), func(at netip.AddrPort) error { return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))) })
	}
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, sockaddr(server)))
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
