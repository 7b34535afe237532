package datapath_test

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// pingPong sends a datagram from one container to another and wants it back, one after the other, all the time.
type pingPong struct {
	sent, lost atomic.Int64
	end        func()
}

func startPingPong(t *testing.T, from, to *pod) *pingPong {
	t.Helper()
	return startPingPongTo(t, from.Namespace, to.Namespace, to.endpoint.Addresses.IPv4)
}

// startPingPongTo is for two namespaces; one has the address.
func startPingPongTo(t *testing.T, from, to *testutil.Namespace, addr netip.Addr) *pingPong {
	t.Helper()
	at := netip.AddrPortFrom(addr, 4711)
	var server, client net.PacketConn
	must(t, to.Do(func() (err error) { server, err = net.ListenPacket("udp", at.String()); return err }))
	must(t, from.Do(func() (err error) { client, err = net.ListenPacket("udp", ":0"); return err }))
	p := &pingPong{}
	var group sync.WaitGroup
	var stopped atomic.Bool
	group.Go(func() { bounce(server) })
	group.Go(func() {
		for !stopped.Load() {
			p.sent.Add(1)
			if !exchange(client, net.UDPAddrFromAddrPort(at)) {
				p.lost.Add(1)
			}
		}
	})
	p.end = sync.OnceFunc(func() {
		stopped.Store(true)
		server.Close()
		client.Close() // or it would wait for the server
		group.Wait()
	})
	t.Cleanup(p.end)
	return p
}

func bounce(conn net.PacketConn) {
	buf := make([]byte, 16)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buf[:n], from)
	}
}

func exchange(conn net.PacketConn, to net.Addr) bool {
	_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
	if _, err := conn.WriteTo([]byte("ping"), to); err != nil {
		return false
	}
	_, _, err := conn.ReadFrom(make([]byte, 16))
	return err == nil
}

// goOn waits for some more packets.
func (p *pingPong) goOn(t *testing.T) {
	t.Helper()
	until := p.sent.Load() + 50
	testutil.Eventually(t, func() error {
		if p.sent.Load() < until {
			return net.ErrClosed
		}
		return nil
	})
}

// stop counts, without what the end itself interrupted.
func (p *pingPong) stop() (sent, lost int64) {
	sent, lost = p.sent.Load(), p.lost.Load()
	p.end()
	return sent, lost
}
