package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// TestHTTPRulesGoSamePort has connections through the proxy closed by the server, so that the proxy's sockets are in
// TIME-WAIT for a minute. Clients may use their ports again: through the proxy, and directly when the rules have gone.
func TestHTTPRulesGoSamePort(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		serveWeb(t, p)
	}
	port := uint16(42000)
	n.forEachFamily(func(t *testing.T, six bool) {
		for _, rulesGo := range []bool{false, true} {
			n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
			ports := map[string]uint16{}
			for _, c := range n.httpEgress(six) {
				port++
				ports[c.name] = port
				if err := c.untilServerCloses(six, port); err != nil {
					t.Fatalf("%s: through the proxy: %v", c.name, err)
				}
			}
			if rulesGo {
				n.ciliumPolicy(noRules)
			}
			for _, c := range n.httpEgress(six) {
				for what, port := range map[string]uint16{"the same port": ports[c.name], "another port": ports[c.name] + 1000} {
					if err := c.untilServerCloses(six, port); err != nil {
						t.Errorf("%s, rules gone: %v, %s: %v", c.name, rulesGo, what, err)
					}
				}
			}
		}
	})
}

// untilServerCloses sends a request from the port, after which the server closes the connection, and then the client.
func (c httpCase) untilServerCloses(six bool, port uint16) error {
	conn, err := dialFrom(c.from, netip.AddrPortFrom(c.from.addr(six), port), c.to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(8 * time.Second)); err != nil {
		return err
	}
	fmt.Fprint(conn, "GET /public/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answers := bufio.NewReader(conn)
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d, %w", response.StatusCode, err)
	}
	if _, err := answers.ReadByte(); err != io.EOF {
		return fmt.Errorf("want the end of the connection: %w", err)
	}
	return nil
}
