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
	"porin.dev/porin/internal/fd"
)

// The ports of the proxy's own connections, above the pods' own range (ip_local_port_range): two connections of the
// same addresses and ports share one entry of the node's connection tracking. A connection may go through the proxies
// of two nodes: the proxy on the client's node takes the lower half of the ports, the proxy on the server's node only
// the upper half. A client with a port of the lower half gets one of the upper half, as it may have many there.
const (
	firstPort = abi.ProxyFirstPort
	ports     = (65536 - firstPort) / 2 // of a half
)

// maxTries is how many ports are tried. A port may serve many connections, to different destinations.
const maxTries = 64

// ErrNoPort is returned when no port is free for a connection.
var ErrNoPort = fault.New(fault.Exhausted, "none of 64 ports that were tried, of the 2,268 from 61000 on for this client, is free")

// Client is who a connection of the proxy's own is for.
type Client struct {
	netip.AddrPort
	IsLocal bool // it is a pod of this node
}

// Dial opens a TCP connection to a destination with the address of the client, from a port of the proxy's own. Packets
// carry the proxy's mark. ctx bounds it.
func (r *Redirect) Dial(ctx context.Context, client Client, destination netip.AddrPort) (conn net.Conn, err error) {
	namespace, err := r.currentNamespace()
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return fd.Control(c, func(fd int) error {
			// SO_REUSEADDR lets connections to different destinations have one port. The kernel refuses a second one to the same
			// destination.
			reuseErr := os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
			return errors.Join(transparent(fd, familyOf(client.Addr())), reuseErr)
		})
	}}
	err = onAnyPort(client.AddrPort, half(client), func(at netip.AddrPort) error {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(at)
		return namespace.do(func() error {
			conn, err = dialer.DialContext(ctx, "tcp", destination.String())
			return err
		})
	})
	if errors.Is(err, ErrNoPort) {
		err = fmt.Errorf("connect to %s as %s: %w", destination, client.Addr(), err)
	}
	return conn, err
}

// currentNamespace returns the namespace that connections are opened in. It does not wait for changes of the kernel.
func (r *Redirect) currentNamespace() (*namespace, error) {
	namespace := r.namespace.Load()
	if namespace == nil {
		return nil, errors.New("the way into the proxy is not open")
	}
	return namespace, nil
}

// half returns 0 for the lower half of the ports, and 1 for the upper one.
func half(client Client) int {
	if client.IsLocal && !isInHalf(client.Port(), 0) {
		return 0
	}
	return 1
}

func isInHalf(port uint16, half int) bool {
	return port >= firstPort && (int(port)-firstPort)/ports == half
}

// onAnyPort calls open with the client's address and up to [maxTries] ports of one half, in a random order and without
// the client's own, until open does not say that the port is in use.
func onAnyPort(client netip.AddrPort, half int, open func(at netip.AddrPort) error) (err error) {
	first, begin := firstPort+half*ports, rand.IntN(ports)
	for i := range maxTries {
		port := uint16(first + (begin+i*617)%ports) // 617 and the number of ports have no common factor
		if port == client.Port() {
			continue
		}
		if err = open(netip.AddrPortFrom(client.Addr(), port)); !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrNoPort, err)
}
