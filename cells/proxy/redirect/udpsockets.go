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

	"porin.dev/porin/bpf/abi"
)

// UDPSockets opens sockets for datagrams to servers, with the addresses of clients, and reads all of them by one goroutine: waking one for each socket would take longer
// than the rest of a short exchange.
type UDPSockets struct {
	redirect *Redirect

	mu   sync.Mutex // guards the fields below
	poll *poll      // nil until the first socket, and after Close
}

// poll is the sockets that are open, and who reads them.
type poll struct {
	file    *os.File // of epoll(7); reading waits for an event
	conn    syscall.RawConn
	stopped chan struct{}

	mu      sync.Mutex // guards the fields below
	sockets map[uint64]*UDPSocket
	last    uint64
}

// UDPSocket sends datagrams to one server. Its methods may be called concurrently.
type UDPSocket struct {
	poll    *poll
	key     uint64 // descriptors are used again, keys are not
	receive func([]byte, error)

	mu sync.Mutex // guards the field below; held while the descriptor is used
	fd int        // -1 when closed
}

// NewUDPSockets returns one without sockets.
func NewUDPSockets(r *Redirect) *UDPSockets { return &UDPSockets{redirect: r} }

// Open returns a socket that is connected to a server, from a port of the proxy's own. Packets carry the proxy's mark. receive is called for each datagram, which is
// valid during the call, and for errors of the socket, by one goroutine for all sockets: it must not block. It may be called once more after Close.
func (d *UDPSockets) Open(client, server netip.AddrPort, receive func([]byte, error)) (*UDPSocket, error) {
	p, err := d.start()
	if err != nil {
		return nil, err
	}
	fd, err := d.redirect.connect(client, server)
	if err != nil {
		return nil, fmt.Errorf("connect to %s as %s: %w", server, client.Addr(), err)
	}
	return p.add(fd, receive)
}

func (d *UDPSockets) start() (*poll, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.poll != nil {
		return d.poll, nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // has [os.NewFile] wait for it with the runtime's own poller
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	p := &poll{file: os.NewFile(uintptr(fd), "epoll"), stopped: make(chan struct{}), sockets: map[uint64]*UDPSocket{}}
	if p.conn, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	go p.run()
	d.poll = p
	return p, nil
}

// Close closes all sockets. When it returns, receive is not called any more.
func (d *UDPSockets) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.poll == nil {
		return nil
	}
	err := d.poll.close()
	d.poll = nil
	return err
}

func (p *poll) close() error {
	err := p.file.Close()
	<-p.stopped
	p.mu.Lock()
	left := p.sockets
	p.sockets = map[uint64]*UDPSocket{}
	p.mu.Unlock()
	for _, s := range left {
		err = errors.Join(err, s.Close())
	}
	return err
}

// add has the socket read. It closes the descriptor after an error.
func (p *poll) add(fd int, receive func([]byte, error)) (*UDPSocket, error) {
	s := &UDPSocket{poll: p, receive: receive, fd: fd}
	p.mu.Lock()
	p.last++
	s.key = p.last
	p.sockets[s.key] = s
	p.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.key), Pad: int32(s.key >> 32)}
	err := control(p.conn, func(epoll int) error {
		return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event))
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// run reads until the file is closed.
func (p *poll) run() {
	defer close(p.stopped)
	var events [64]unix.EpollEvent
	buffer := make([]byte, 65536)
	_ = p.conn.Read(func(epoll uintptr) bool {
		for {
			n, err := unix.EpollWait(int(epoll), events[:], 0)
			if n <= 0 && !errors.Is(err, unix.EINTR) {
				return false // the next event wakes it
			}
			for _, e := range events[:max(n, 0)] {
				p.read(uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32, buffer)
			}
		}
	})
}

func (p *poll) read(key uint64, buffer []byte) {
	p.mu.Lock()
	s := p.sockets[key]
	p.mu.Unlock()
	if s == nil {
		return
	}
	n, err := s.read(buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, net.ErrClosed):
	case err != nil:
		s.receive(nil, os.NewSyscallError("read", err))
	default:
		s.receive(buffer[:n], nil)
	}
}

func (s *UDPSocket) read(buffer []byte) (int, error) {
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
	return max(n, 0), os.NewSyscallError("write", err)
}

// Close closes the socket.
func (s *UDPSocket) Close() error {
	s.poll.mu.Lock()
	delete(s.poll.sockets, s.key)
	s.poll.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return os.NewSyscallError("close", err)
}

// connect returns the descriptor of a socket from the client's address to the server's. Package net would need a third more system calls.
func (r *Redirect) connect(client, server netip.AddrPort) (fd int, err error) {
	namespace, err := r.where()
	if err != nil {
		return -1, err
	}
	family := unix.AF_INET
	if server.Addr().Is6() {
		family = unix.AF_INET6
	}
	err = namespace.do(func() error {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return -1, err
	}
	err = errors.Join(setTransparent(fd, family), os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, abi.ProxyMark)))
	if err == nil {
		err = onAnyPort(client, func(at netip.AddrPort) error { return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))) })
	}
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, sockaddr(server)))
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
