package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// TestHTTPRulesSamePort: a pod has a connection through the proxy, and opens another one by a Service to the same
// server, from the same port. The node's NAT chooses another port for that, as it would without the proxy.
func TestHTTPRulesSamePort(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		serveWeb(t, n.b)
		serveWeb(t, n.d)
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
		port := 47001
		n.forEachFamily(func(t *testing.T, six bool) {
			for name, c := range map[string][2]netip.AddrPort{
				"pod, Service on the node":     {n.b.at(six, webPort), n.at(web, six)},
				"Service, pod on the node":     {n.at(web, six), n.b.at(six, webPort)},
				"pod, Service on another node": {n.d.at(six, webPort), n.at(remoteWeb, six)},
				"Service, pod of another node": {n.at(remoteWeb, six), n.d.at(six, webPort)},
			} {
				port++
				for i, to := range c {
					conn, err := dialFrom(n.a, netip.AddrPortFrom(n.a.addr(six), uint16(port)), to)
					if err != nil {
						t.Errorf("%s: connection %d: %v", name, i, err)
						break
					}
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
					fmt.Fprintf(conn, "GET /public/x HTTP/1.1\r\nHost: %s\r\n\r\n", to)
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil || response.StatusCode != http.StatusOK {
						t.Errorf("%s: request %d: %+v, %v", name, i, response, err)
					}
				}
			}
		})
	})
}

// dialFrom opens a connection from a port that another connection may have.
func dialFrom(p party, from, to netip.AddrPort) (conn net.Conn, err error) {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Control: sharePort}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = p.Do(func() error {
		conn, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}
