package e2e

import (
	"net"
	"net/netip"
	"sync"
	"testing"
)

// TestHTTPRulesHighPorts has a pod keep many connections to one server from ports that the proxy takes for its own,
// too: net.ipv4.ip_local_port_range is a safe sysctl of pods. A few may fail, where the node's conntrack has one entry
// for the client's connection and one of the proxy's: see docs/limits.md.
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
			failed, text := n.fromPorts(six, server, 62000)
			if failed > keptConnections/50 {
				t.Errorf("IPv6 %v, %s: %d of %d connections failed, such as: %s", six, name, failed, keptConnections, text)
			}
		}
	}
}

// TestHTTPRulesPortsOfBothProxies has the proxies of both nodes on the way of a pod's many connections to one server:
// both take ports of the client's address.
func TestHTTPRulesPortsOfBothProxies(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.d)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	if _, err := n.two.api.PutPolicies(t.Context(), []byte(ciliumPolicy("{endpointSelector: {}, ingress: [{"+publicOnly+"}]}"))); err != nil {
		t.Fatal(err)
	}
	for _, six := range []bool{false, true} {
		if failed, text := n.fromPorts(six, n.d.at(six, webPort), 40000); failed > 0 {
			t.Errorf("IPv6 %v: %d of %d connections failed, such as: %s", six, failed, keptConnections, text)
		}
	}
}

const keptConnections = 700

// fromPorts opens connections from a, from ports that begin with first, with one request each, and returns how many
// have failed.
func (n *serviceNodes) fromPorts(six bool, server netip.AddrPort, first int) (failed int, text string) {
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
	for i := range keptConnections {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			conn, err := dialFrom(n.a, netip.AddrPortFrom(n.a.addr(six), uint16(first+i)), server)
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
