package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// UDPLoop reads the datagrams of clients and of servers by one thread of its own, which waits in epoll(7). The
// runtime's poller would wake other threads for each of them, which takes longer than the rest of a short exchange.
type UDPLoop struct {
	redirect *Redirect

	mu   sync.Mutex // guards the field below
	poll *poll      // nil until the first socket, and after Close
}

// poll is the sockets that are open, and the thread that reads them.
type poll struct {
	epoll   int
	wake    int // an eventfd(2) that ends the thread
	stopped chan struct{}

	mu      sync.Mutex // guards the fields below
	closed  bool
	sockets map[uint64]reader
	last    uint64
}

// reader reads one datagram, when there may be one.
type reader interface {
	read(buffer []byte)
}

// Datagram is a datagram from a client.
type Datagram struct {
	Client, Server netip.AddrPort
	Message        []byte
}

// NewUDPLoop returns one without sockets.
func NewUDPLoop(r *Redirect) *UDPLoop { return &UDPLoop{redirect: r} }

// Serve has receive called for each datagram of the socket, until that is closed. The message is valid during the call.
// receive is called by the thread that reads all sockets: it must not block. A datagram that cannot be read is passed
// to it as an error.
func (u *UDPLoop) Serve(socket *UDPListener, receive func(Datagram, error)) error {
	p, err := u.start()
	if err != nil {
		return err
	}
	return socket.serve(p, receive)
}

// Open returns a socket that is connected to a server, from a port of the proxy's own. Packets carry the proxy's mark.
// receive is called for each datagram, which is valid during the call, by the thread that reads all sockets: it must
// not block. It may be called once more after Close.
func (u *UDPLoop) Open(client Client, server netip.AddrPort, receive func([]byte)) (*UDPSocket, error) {
	p, err := u.start()
	if err != nil {
		return nil, err
	}
	fd, err := u.redirect.connect(client, server)
	if err != nil {
		return nil, fmt.Errorf("connect to %s as %s: %w", server, client.Addr(), err)
	}
	s := &UDPSocket{poll: p, key: p.newKey(), receive: receive, fd: fd}
	if err := p.add(fd, s.key, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (u *UDPLoop) start() (*poll, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.poll != nil {
		return u.poll, nil
	}
	p, err := newPoll()
	if err != nil {
		return nil, err
	}
	go p.run()
	u.poll = p
	return p, nil
}

// Close closes all sockets to servers, and serves no others any more. When it returns, receive is not called any more.
func (u *UDPLoop) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.poll == nil {
		return nil
	}
	err := u.poll.close()
	u.poll = nil
	return err
}

func newPoll() (*poll, error) {
	p := &poll{stopped: make(chan struct{}), sockets: map[uint64]reader{}}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(p.epoll))
	}
	if err := p.watch(p.wake, wakeKey); err != nil {
		return nil, errors.Join(err, unix.Close(p.wake), unix.Close(p.epoll))
	}
	return p, nil
}

// wakeKey is the key of the eventfd. Those of sockets begin after it.
const wakeKey = 0

func (p *poll) watch(fd int, key uint64) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(key), Pad: int32(key >> 32)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event))
}

func (p *poll) close() error {
	if _, err := unix.Write(p.wake, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		return os.NewSyscallError("write", err)
	}
	<-p.stopped
	p.mu.Lock()
	p.closed = true
	left := p.sockets
	p.sockets = map[uint64]reader{}
	errs := []error{unix.Close(p.wake), unix.Close(p.epoll)}
	p.mu.Unlock()
	for _, r := range left {
		if s, ok := r.(*UDPSocket); ok {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// newKey returns a key that no socket has had.
func (p *poll) newKey() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// add has a descriptor read by r.
func (p *poll) add(fd int, key uint64, r reader) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	if err := p.watch(fd, key); err != nil {
		return err
	}
	p.sockets[key] = r
	return nil
}

// removeKey ends reading for a socket that is about to be closed: closing its last copy takes it out of epoll.
func (p *poll) removeKey(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sockets, key)
}

// unwatch ends reading, and takes the descriptor out of epoll, as copies in other processes keep it open.
func (p *poll) unwatch(fd int, key uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sockets, key)
	if p.closed {
		return nil
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil))
}

func (p *poll) reader(key uint64) reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sockets[key]
}

// run reads until it is woken. Sockets have a datagram read each in turn.
func (p *poll) run() {
	runtime.LockOSThread() // other goroutines would have this one change its thread
	defer runtime.UnlockOSThread()
	defer close(p.stopped)
	var events [64]unix.EpollEvent
	buffer := make([]byte, 65536)
	for {
		n, _ := unix.EpollWait(p.epoll, events[:], -1) // it fails with EINTR alone
		for _, e := range events[:max(n, 0)] {
			key := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			if key == wakeKey {
				return
			}
			if r := p.reader(key); r != nil {
				r.read(buffer)
			}
		}
	}
}

// wouldBlock reports EAGAIN or EINTR.
func wouldBlock(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }
