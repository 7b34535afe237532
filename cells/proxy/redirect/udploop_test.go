package redirect_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/testutil"
)

// echoServer sends each datagram back as often as its first byte says. It returns where clients have come from, one for
// each datagram.
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
func opened(t *testing.T) (*testutil.Namespace, *redirect.UDPLoop) {
	t.Helper()
	w := newWorld(t)
	w.open(t, w.redirect)
	return w.node, newLoop(t, w)
}

func newLoop(t *testing.T, w *world) *redirect.UDPLoop {
	loop := redirect.NewUDPLoop(w.redirect)
	t.Cleanup(func() { must(t, loop.Close()) })
	return loop
}

// localAddr returns the address of a listening socket.
func localAddr(t *testing.T, socket *redirect.UDPListener) (at netip.AddrPort) {
	t.Helper()
	raw, err := socket.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		addr, err := unix.Getsockname(int(fd))
		must(t, err)
		switch addr := addr.(type) {
		case *unix.SockaddrInet4:
			at = netip.AddrPortFrom(netip.AddrFrom4(addr.Addr), uint16(addr.Port))
		case *unix.SockaddrInet6:
			at = netip.AddrPortFrom(netip.AddrFrom16(addr.Addr), uint16(addr.Port))
		}
	}))
	return at
}

// TestUDPLoopServe reads and answers clients' datagrams, until the socket is closed while another process has a copy:
// later datagrams wait for that process.
func TestUDPLoopServe(t *testing.T) {
	w := newWorld(t)
	var listeners *redirect.Listeners
	must(t, w.node.Do(func() (err error) { listeners, err = w.redirect.Open(); return err }))
	loop := newLoop(t, w)
	copies, err := listeners.Sockets()
	must(t, err)
	defer func() { must(t, copies.Close()) }()
	if len(listeners.UDP) != 2*int(abi.UDPListeners) {
		t.Errorf("%d sockets, want %d of each family", len(listeners.UDP), abi.UDPListeners)
	}
	for index, socket := range listeners.UDP {
		at := localAddr(t, socket)
		var handling sync.Mutex
		must(t, loop.Serve(socket, func(got redirect.Datagram, err error) {
			handling.Lock()
			defer handling.Unlock()
			if err != nil || got.Server != at {
				t.Errorf("a datagram to %s came as one to %s, %v", at, got.Server, err)
			}
			if err := listeners.Reply(got.Server, got.Client, got.Message); err != nil {
				t.Error(err)
			}
		}))
		var client net.Conn
		must(t, w.node.Do(func() (err error) { client, err = net.Dial("udp", at.String()); return err }))
		defer client.Close()
		must(t, client.SetDeadline(time.Now().Add(10*time.Second)))
		answer := make([]byte, 2000)
		for _, message := range [][]byte{[]byte("a"), nil, bytes.Repeat([]byte("long "), 300)} {
			_, err := client.Write(message)
			must(t, err)
			n, err := client.Read(answer)
			if err != nil || !bytes.Equal(answer[:n], message) {
				t.Errorf("%s: %d bytes came back of %d, %v", at, n, len(message), err)
			}
		}
		must(t, socket.Close())
		if !handling.TryLock() {
			t.Error("a datagram is still being handled after Close")
		}
		_, err := client.Write([]byte("late"))
		must(t, err)
		n, err := copies[index].Read(answer) // blocks until it is there
		if err != nil || string(answer[:n]) != "late" {
			t.Errorf("%s: the copy has %q, %v; want what was sent after Close", at, answer[:n], err)
		}
		if err := socket.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	}
}

// TestUDPLoop has many sockets that are open at a time, in both families.
func TestUDPLoop(t *testing.T) {
	ns, loop := opened(t)
	for _, at := range []string{"127.0.0.1:53", "[::1]:53"} {
		server := netip.MustParseAddrPort(at)
		clients := echoServer(t, ns, server)
		const sockets = 100 // as many datagrams have room in the buffer of the server
		var got sync.WaitGroup
		var open []*redirect.UDPSocket
		for i := range sockets {
			got.Add(2)
			message := []byte{2, byte(i), byte(i >> 8)}
			s, err := loop.Open(redirect.Client{AddrPort: netip.AddrPortFrom(server.Addr(), 4000)}, server, func(m []byte) {
				defer got.Done()
				if string(m) != string(message) {
					t.Errorf("socket %d of %s got %x", i, server, m)
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

// TestUDPLoopClose has no server at first: the socket goes on after the refusal. It is closed, and then all sockets
// are.
func TestUDPLoopClose(t *testing.T) {
	ns, loop := opened(t)
	local := netip.MustParseAddrPort("127.0.0.1:5353")
	got := make(chan string, 1)
	s, err := loop.Open(redirect.Client{AddrPort: local}, local, func(m []byte) { got <- string(m) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	echoServer(t, ns, local)
	if _, err := s.Write([]byte{1, 2}); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m != "\x01\x02" {
		t.Errorf("the socket got %x, want what was sent when there was a server", m)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	left, err := loop.Open(redirect.Client{AddrPort: local}, local, func([]byte) { t.Error("a datagram came that was not sent") })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(loop.Close(), loop.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := left.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written after Close: %v", err)
	}
	again := make(chan struct{})
	once, err := loop.Open(redirect.Client{AddrPort: local}, local, func([]byte) { close(again) })
	if err != nil {
		t.Fatalf("opened after Close: %v", err)
	}
	defer once.Close()
	if _, err := once.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	<-again
}
