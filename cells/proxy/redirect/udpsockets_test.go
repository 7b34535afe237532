package redirect_test

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/testutil"
)

// echoServer sends each datagram back as often as its first byte says. It returns where clients have come from, one for each datagram.
func echoServer(t *testing.T, ns *testutil.Namespace, at netip.AddrPort) (from <-chan netip.AddrPort) {
	t.Helper()
	var conn *net.UDPConn
	if err := ns.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	clients, done := make(chan netip.AddrPort, 10000), make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			clients <- from
			for range buffer[0] {
				_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
			}
		}
	}()
	return clients
}

// opened is a way into the proxy that is open.
func opened(t *testing.T) (*testutil.Namespace, *redirect.UDPSockets) {
	t.Helper()
	w := newWorld(t)
	w.open(t, w.redirect)
	d := redirect.NewUDPSockets(w.redirect)
	t.Cleanup(func() { must(t, d.Close()) })
	return w.node, d
}

// TestUDPSockets has many sockets that are open at a time, in both families.
func TestUDPSockets(t *testing.T) {
	ns, d := opened(t)
	for _, at := range []string{"127.0.0.1:53", "[::1]:53"} {
		server := netip.MustParseAddrPort(at)
		clients := echoServer(t, ns, server)
		const sockets = 100 // as many datagrams have room in the buffer of the server
		var got sync.WaitGroup
		var open []*redirect.UDPSocket
		for i := range sockets {
			got.Add(2)
			message := []byte{2, byte(i), byte(i >> 8)}
			s, err := d.Open(netip.AddrPortFrom(server.Addr(), 4000), server, func(m []byte, err error) {
				defer got.Done()
				if err != nil || string(m) != string(message) {
					t.Errorf("socket %d of %s got %x, %v", i, server, m, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, s)
			if _, err := s.Write(message); err != nil {
				t.Fatal(err)
			}
		}
		got.Wait()
		ports := map[uint16]bool{}
		for range sockets {
			c := <-clients
			if ports[c.Port()] = true; c.Addr() != server.Addr() || c.Port() < abi.ProxyFirstPort {
				t.Errorf("a datagram came from %s, want a port of the proxy", c)
			}
		}
		if len(ports) != sockets {
			t.Errorf("%d ports for %d sockets", len(ports), sockets)
		}
		for _, s := range open {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := open[0].Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("written to a closed socket: %v", err)
		}
	}
}

// TestUDPSocketsRefused has no server, and sockets that are closed in receive and with all of them.
func TestUDPSocketsRefused(t *testing.T) {
	ns, d := opened(t)
	local := netip.MustParseAddrPort("127.0.0.1:5353")
	refused := make(chan error, 1)
	s, err := d.Open(local, local, func(_ []byte, err error) { refused <- err })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the socket got %v, want ECONNREFUSED", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	echoServer(t, ns, local)
	left, err := d.Open(local, local, func([]byte, error) { t.Error("a datagram came that nobody has sent") })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := left.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written after Close: %v", err)
	}
	again := make(chan struct{})
	once, err := d.Open(local, local, func(m []byte, err error) { close(again) })
	if err != nil {
		t.Fatalf("opened after Close: %v", err)
	}
	defer once.Close()
	if _, err := once.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	<-again
}
