package redirect

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/fd"
)

// Sockets are listening sockets by their index in the BPF map listeners ([abi.ListenerTCP4], ...), as one process hands
// them to another. Whoever has them closes them.
type Sockets map[uint32]*os.File

// socketName is the name of copies of the sockets, for errors.
const socketName = "listening socket of the proxy"

// socketKind is what a socket has to be.
type socketKind struct {
	domain, kind, listening int
	network                 string
}

// kindOf returns what the socket with an index has to be, and false for an index that there is not.
func kindOf(index uint32) (socketKind, bool) {
	switch {
	case index == abi.ListenerTCP4:
		return socketKind{unix.AF_INET, unix.SOCK_STREAM, 1, "tcp4"}, true
	case index == abi.ListenerTCP6:
		return socketKind{unix.AF_INET6, unix.SOCK_STREAM, 1, "tcp6"}, true
	case index >= abi.ListenerUDP4 && index < abi.ListenerUDP4+abi.UDPListeners:
		return socketKind{unix.AF_INET, unix.SOCK_DGRAM, 0, "udp4"}, true
	case index >= abi.ListenerUDP6 && index < abi.ListenerUDP6+abi.UDPListeners:
		return socketKind{unix.AF_INET6, unix.SOCK_DGRAM, 0, "udp6"}, true
	}
	return socketKind{}, false
}

// Close closes all of them.
func (s Sockets) Close() error {
	var errs []error
	for _, file := range s {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// check returns why the sockets cannot be the proxy's.
func (s Sockets) check() error {
	for index, file := range s {
		want, ok := kindOf(index)
		if !ok {
			return fmt.Errorf("socket %d: there is no such index", index)
		}
		err := fd.Do(file, func(fd int) error {
			for _, o := range []struct{ option, want int }{
				{unix.SO_DOMAIN, want.domain}, {unix.SO_TYPE, want.kind}, {unix.SO_MARK, abi.ProxyMark}, {unix.SO_ACCEPTCONN, want.listening},
			} {
				is, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
				if err != nil {
					return os.NewSyscallError("getsockopt", err)
				}
				if is != o.want {
					return fmt.Errorf("it is no %s socket of the proxy: option %d is %d instead of %d", want.network, o.option, is, o.want)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("socket %d: %w", index, err)
		}
	}
	for index := range uint32(abi.ListenerUDP4 + abi.UDPListeners) {
		if s[index] == nil && index != abi.ListenerTCP6 {
			return errors.New("the sockets of IPv4 are not all among them")
		}
	}
	return nil
}

// adopt makes listeners of sockets of another process, which it leaves open.
func adopt(n *namespace, given Sockets) (_ *Listeners, err error) {
	l := &Listeners{namespace: n, UDP: map[uint32]*UDPListener{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("take over the proxy's sockets: %w", err), l.close())
		}
	}()
	if err := given.check(); err != nil {
		return nil, err
	}
	if err := n.do(func() (err error) { l.replies, err = openReplySockets(); return err }); err != nil {
		return nil, err
	}
	for index, file := range given {
		if kind, _ := kindOf(index); kind.kind == unix.SOCK_STREAM {
			listener, err := net.FileListener(file)
			if err != nil {
				return nil, err
			}
			*map[uint32]**net.TCPListener{abi.ListenerTCP4: &l.TCP4, abi.ListenerTCP6: &l.TCP6}[index] = listener.(*net.TCPListener)
			continue
		}
		own, err := fd.Duplicate(file, socketName)
		if err != nil {
			return nil, err
		}
		l.UDP[index] = newUDPListener(own)
	}
	return l, nil
}

// Sockets returns copies of the sockets: connections wait for them as long as one is open in any process.
func (l *Listeners) Sockets() (_ Sockets, err error) {
	copies := Sockets{}
	for index, socket := range l.all() {
		if copies[index], err = fd.Duplicate(socket, socketName); err != nil {
			delete(copies, index)
			return nil, errors.Join(fmt.Errorf("copy the proxy's sockets: %w", err), copies.Close())
		}
	}
	return copies, nil
}
