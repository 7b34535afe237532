package testutil

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// Listen opens a TCP socket in the namespace, on any port when it is 0. It is closed at the end of the test.
func (n *Namespace) Listen(t testing.TB, addr netip.AddrPort) net.Listener {
	t.Helper()
	var listener net.Listener
	err := n.Do(func() (err error) {
		listener, err = net.Listen("tcp", addr.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// Dial connects from the namespace.
func (n *Namespace) Dial(to netip.AddrPort, timeout time.Duration) (conn net.Conn, err error) {
	err = n.Do(func() error {
		conn, err = net.DialTimeout("tcp", to.String(), timeout)
		return err
	})
	return conn, err
}

// Echo serves TCP in the namespace, on the address and a free port, which it returns: it sends all input back. It
// ends with the test.
func (n *Namespace) Echo(t testing.TB, addr netip.Addr) netip.AddrPort {
	t.Helper()
	listener := n.Listen(t, netip.AddrPortFrom(addr, 0))
	var (
		running sync.WaitGroup
		mu      sync.Mutex // guards conns
		conns   []net.Conn
	)
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return netip.AddrPortFrom(addr, listener.Addr().(*net.TCPAddr).AddrPort().Port())
}

// RoundTrip connects from the namespace to an [Namespace.Echo], and sends some bytes there and back.
func RoundTrip(from *Namespace, to netip.AddrPort, timeout time.Duration) error {
	conn, err := from.Dial(to, timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	sent := bytes.Repeat([]byte("porin"), 2000) // more than one segment
	errs := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		errs <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if err := <-errs; err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("the bytes that came back from %s are others than were sent", to)
	}
	return nil
}
