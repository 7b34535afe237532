package e2e

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHTTPRulesHighPorts has a pod keep many connections to one server from ports that the proxy takes for its own, too: net.ipv4.ip_local_port_range is a safe sysctl of pods. A few may
// fail, where the node's conntrack has one entry for the client's connection and one of the proxy's: see docs/limits.md.
func TestHTTPRulesHighPorts(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.d)
	serveWeb(t, n.b)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	for _, six := range []bool{false, true} {
		for name, server := range map[string]netip.AddrPort{
			"other node": n.d.at(six, webPort), "same node": n.b.at(six, webPort), "a Service": n.at(web, six), "a Service on the other node": n.at(remoteWeb, six),
		} {
			failed, text := n.fromHighPorts(six, server)
			if failed > highPorts/50 {
				t.Errorf("IPv6 %v, %s: %d of %d connections failed, such as: %s", six, name, failed, highPorts, text)
			}
		}
	}
}

const highPorts = 700

// fromHighPorts opens connections from a, with one request each, and returns how many have failed.
func (n *serviceNodes) fromHighPorts(six bool, server netip.AddrPort) (failed int, text string) {
	const first = 62000
	var mu sync.Mutex // guards what follows
	var conns []net.Conn
	note := func(conn net.Conn, err error) {
		mu.Lock()
		defer mu.Unlock()
		if conn != nil {
			conns = append(conns, conn)
		}
		if err != nil {
			failed++
			text = err.Error()
		}
	}
	var all sync.WaitGroup
	room := make(chan struct{}, 32)
	for i := range highPorts {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			dialer := net.Dialer{Timeout: 3 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.a.addr(six), uint16(first+i))), Control: reuseAddress}
			var conn net.Conn
			err := n.a.Do(func() (err error) { conn, err = dialer.Dial("tcp", server.String()); return err })
			if err == nil {
				err = requestOn(conn, "/public/x")
			}
			note(conn, err)
		})
	}
	all.Wait()
	for _, conn := range conns {
		conn.Close()
	}
	return failed, text
}

// reuseAddress lets one port have connections to several servers.
func reuseAddress(_, _ string, c syscall.RawConn) error {
	var err error
	controlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(controlErr, err)
}
