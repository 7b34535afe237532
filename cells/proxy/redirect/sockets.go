package redirect

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// Sockets are listening sockets by their place in the program's map, as one process hands them to another. Whoever has them closes them.
type Sockets map[uint32]*os.File

// socketKind is what is at a place.
type socketKind struct {
	domain, kind int
	network      string
}

// kindOf returns false for a place that there is not.
func kindOf(place uint32) (socketKind, bool) {
	switch {
	case place == abi.ListenerTCP4:
		return socketKind{unix.AF_INET, unix.SOCK_STREAM, "tcp4"}, true
	case place == abi.ListenerTCP6:
		return socketKind{unix.AF_INET6, unix.SOCK_STREAM, "tcp6"}, true
	case place >= abi.ListenerUDP4 && place < abi.ListenerUDP4+abi.UDPListeners:
		return socketKind{unix.AF_INET, unix.SOCK_DGRAM, "udp4"}, true
	case place >= abi.ListenerUDP6 && place < abi.ListenerUDP6+abi.UDPListeners:
		return socketKind{unix.AF_INET6, unix.SOCK_DGRAM, "udp6"}, true
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
	for place, file := range s {
		want, ok := kindOf(place)
		if !ok {
			return fmt.Errorf("socket %d: there is no such place", place)
		}
		raw, err := file.SyscallConn()
		if err != nil {
			return err
		}
		err = control(raw, func(fd int) error {
			for _, o := range []struct{ option, want int }{
				{unix.SO_DOMAIN, want.domain}, {unix.SO_TYPE, want.kind}, {unix.SO_MARK, abi.ProxyMark}, {unix.SO_ACCEPTCONN, boolInt(want.kind == unix.SOCK_STREAM)},
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
			return fmt.Errorf("socket %d: %w", place, err)
		}
	}
	for place := range uint32(abi.ListenerUDP4 + abi.UDPListeners) {
		if s[place] == nil && place != abi.ListenerTCP6 {
			return errors.New("the sockets of IPv4 are not all among them")
		}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
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
	for place, file := range given {
		if kind, _ := kindOf(place); kind.kind == unix.SOCK_STREAM {
			listener, err := net.FileListener(file)
			if err != nil {
				return nil, err
			}
			*map[uint32]**net.TCPListener{abi.ListenerTCP4: &l.TCP4, abi.ListenerTCP6: &l.TCP6}[place] = listener.(*net.TCPListener)
			continue
		}
		own, err := duplicate(file)
		if err != nil {
			return nil, err
		}
		l.UDP[place] = newUDPListener(own)
	}
	return l, nil
}

// Sockets returns copies of the sockets: connections wait for them as long as one is open in any process.
func (l *Listeners) Sockets() (_ Sockets, err error) {
	copies := Sockets{}
	for place, socket := range l.all() {
		if copies[place], err = duplicate(socket); err != nil {
			delete(copies, place)
			return nil, errors.Join(fmt.Errorf("copy the proxy's sockets: %w", err), copies.Close())
		}
	}
	return copies, nil
}

func duplicate(socket syscall.Conn) (file *os.File, err error) {
	err = onSocket(socket, func(fd int) error {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		file = os.NewFile(uintptr(other), "listening socket of the proxy")
		return nil
	})
	return file, err
}
