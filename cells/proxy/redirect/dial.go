package redirect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/fault"
)

// The ports of the proxy's own connections, above those that pods choose for theirs (ip_local_port_range): two
// connections of the same addresses and ports cannot be told apart.
const (
	firstPort = abi.ProxyFirstPort
	ports     = 65536 - firstPort
)

// mostTries is how many ports are tried. A port may serve many connections, to different destinations.
const mostTries = 64

// ErrNoPort is returned when no port is free for a connection.
var ErrNoPort = fault.New(fault.Exhausted, "no port from 61000 to 65535 is free for a connection of the proxy with the address of its client")

// Dial connects to a destination with the address of the client, from a port of the proxy's own. Packets carry the proxy's mark.
// network is "tcp" or "udp". ctx bounds it.
func (r *Redirect) Dial(ctx context.Context, network string, client netip.AddrPort, destination netip.AddrPort) (conn net.Conn, err error) {
	r.mu.Lock()
	namespace := r.namespace
	r.mu.Unlock()
	if namespace == nil {
		return nil, errors.New("the way into the proxy is not open")
	}
	dialer := net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error { return errors.Join(transparent(fd), shareAddress(network, fd)) })
	}}
	begin := rand.IntN(ports)
	for i := range mostTries {
		port := uint16(firstPort + (begin+i*617)%ports) // 617 and the number of ports have no common factor
		if port == client.Port() {
			continue
		}
		dialer.LocalAddr = localAddr(network, netip.AddrPortFrom(client.Addr(), port))
		err = namespace.do(func() error {
			conn, err = dialer.DialContext(ctx, network, destination.String())
			return err
		})
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return conn, err
		}
	}
	return nil, fmt.Errorf("connect to %s as %s: %w: %w", destination, client.Addr(), ErrNoPort, err)
}

// shareAddress lets connections to different destinations have one port. The kernel refuses a second one to the same destination, but of
// datagrams it does not.
func shareAddress(network string, fd int) error {
	if network == "udp" {
		return nil
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
}

func localAddr(network string, addr netip.AddrPort) net.Addr {
	if network == "udp" {
		return net.UDPAddrFromAddrPort(addr)
	}
	return net.TCPAddrFromAddrPort(addr)
}
