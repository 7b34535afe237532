package redirect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/fd"
)

// Listeners are the proxy's listening sockets. Those of IPv6 are nil without IPv6.
type Listeners struct {
	TCP4, TCP6 *net.TCPListener
	UDP        map[uint32]*UDPListener // by their index in the map listeners; each is for some of the clients

	replies   replySockets
	namespace *namespace
	program   *ebpf.Program // nil until attach
	sockets   *ebpf.Map
	device    int // index of the device that the program is for
}

// listen opens the sockets in the namespace. They are bound to the loopback address, where no peer can reach them.
func listen(n *namespace) (_ *Listeners, err error) {
	l := &Listeners{namespace: n, UDP: map[uint32]*UDPListener{}}
	err = n.do(func() error {
		for _, one := range []struct {
			network string
			open    func() error
		}{
			{"tcp4", func() (err error) { l.TCP4, err = listenTCP("tcp4", "127.0.0.1:0", unix.AF_INET); return err }},
			{"tcp6", func() (err error) { l.TCP6, err = listenTCP("tcp6", "[::1]:0", unix.AF_INET6); return err }},
			{"udp4", func() error { return l.listenUDP(abi.ListenerUDP4, unix.AF_INET) }},
			{"udp6", func() error { return l.listenUDP(abi.ListenerUDP6, unix.AF_INET6) }},
		} {
			err := one.open()
			if noIPv6 := errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL); err != nil && !(noIPv6 && one.network[3] == '6') {
				return fmt.Errorf("open the proxy's %s socket: %w", one.network, err)
			}
		}
		l.replies, err = openReplySockets()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// listenUDP opens the sockets of a family, whose indexes begin with first.
func (l *Listeners) listenUDP(first uint32, family int) error {
	for index := first; index < first+abi.UDPListeners; index++ {
		socket, err := listenUDP(family)
		if err != nil {
			return err
		}
		l.UDP[index] = socket
	}
	return nil
}

func listenTCP(network, address string, family int) (*net.TCPListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return fd.Control(c, func(fd int) error { return transparent(fd, family) })
	}}
	config.SetMultipathTCP(false) // the map takes no such sockets
	listener, err := config.Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil
}

// all returns the sockets by their index in the map listeners.
func (l *Listeners) all() map[uint32]syscall.Conn {
	all := map[uint32]syscall.Conn{}
	if l.TCP4 != nil {
		all[abi.ListenerTCP4] = l.TCP4
	}
	if l.TCP6 != nil {
		all[abi.ListenerTCP6] = l.TCP6
	}
	for index, socket := range l.UDP {
		all[index] = socket
	}
	return all
}

// attach gives the sockets the packets from the device, in place of a previous agent's sockets.
func (l *Listeners) attach(pin string, device int, programs Link) (err error) {
	if l.compare(pin, device, programs) == "" {
		return nil
	}
	if err := programs.UseMaps(func(shared map[string]*ebpf.Map) error { return l.load(device, shared) }); err != nil {
		return err
	}
	attached, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer attached.Close()
		if err = attached.Update(l.program); err == nil {
			return nil
		}
		if err = attached.Unpin(); err != nil { // of a namespace that is gone
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open the pin %s: %w", pin, err)
	}
	attached, err = link.AttachNetNs(int(l.namespace.file.Fd()), l.program)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return fmt.Errorf("attach %s: %w", bpf.SelectListener, err)
	}
	defer attached.Close()
	if err := os.MkdirAll(filepath.Dir(pin), 0o700); err != nil {
		return err
	}
	if err := attached.Pin(pin); err != nil {
		return fmt.Errorf("pin %s: %w", bpf.SelectListener, err)
	}
	return nil
}

// load loads the program for a device, with the sockets in its map, and maps of other programs.
func (l *Listeners) load(device int, shared map[string]*ebpf.Map) error {
	l.unload()
	spec, err := bpf.Listener()
	if err != nil {
		return err
	}
	if err := errors.Join(rlimit.RemoveMemlock(), spec.Variables[bpf.SelectListenerLink].Set(uint32(device))); err != nil {
		return fmt.Errorf("configure %s: %w", bpf.SelectListener, err)
	}
	for name, one := range spec.Maps {
		if m := shared[name]; m != nil {
			one.MaxEntries = m.MaxEntries()
		} else {
			one.MaxEntries = max(1, one.MaxEntries)
		}
	}
	var objects struct {
		Program *ebpf.Program `ebpf:"select_listener"`
		Sockets *ebpf.Map     `ebpf:"listeners"`
	}
	err = spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil && errors.Is(features.HaveProgramType(ebpf.SkLookup), ebpf.ErrNotSupported) {
		return fmt.Errorf("load %s: %w: %w", bpf.SelectListener, ErrUnsupported, err)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", bpf.SelectListener, err)
	}
	l.program, l.sockets, l.device = objects.Program, objects.Sockets, device
	for index, socket := range l.all() {
		err := fd.Do(socket, func(fd int) error { return l.sockets.Put(index, uint64(fd)) })
		if err != nil {
			return fmt.Errorf("put a socket into the map %s: %w", bpf.Listeners, err)
		}
	}
	return nil
}

func (l *Listeners) unload() {
	if l.program != nil {
		l.program.Close()
		l.sockets.Close()
		l.program, l.sockets = nil, nil
	}
}

// StopAccepting closes the sockets: new connections and datagrams wait for the next proxy. Reply works on.
func (l *Listeners) StopAccepting() error {
	var errs []error
	for _, listener := range []*net.TCPListener{l.TCP4, l.TCP6} {
		if listener != nil {
			errs = append(errs, listener.Close())
		}
	}
	for _, socket := range l.UDP {
		errs = append(errs, socket.Close())
	}
	return closed(errs...)
}

func (l *Listeners) close() error {
	if l == nil {
		return nil
	}
	l.unload()
	return errors.Join(l.StopAccepting(), l.replies.close())
}

// closed leaves out the errors of what was closed before.
func closed(errs ...error) error {
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, net.ErrClosed) })...)
}

// unpin removes the pin, and its folder when nothing else is in it.
func unpin(pin string) error {
	for _, name := range []string{pin, filepath.Dir(pin)} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("remove the pin %s: %w", pin, err)
		}
	}
	return nil
}

// transparent lets a socket have addresses of others, and marks what it sends (ip(7), IP_TRANSPARENT).
func transparent(fd, family int) error {
	return errors.Join(
		setOption(fd, family, unix.IP_TRANSPARENT, unix.IPV6_TRANSPARENT),
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, abi.ProxyMark)),
	)
}

// setOption sets an option of IPv4, or of IPv6, to 1.
func setOption(fd, family, ipv4, ipv6 int) error {
	level, option := unix.SOL_IP, ipv4
	if family == unix.AF_INET6 {
		level, option = unix.SOL_IPV6, ipv6
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, 1))
}

func familyOf(addr netip.Addr) int {
	if addr.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
