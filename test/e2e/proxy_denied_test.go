package e2e

import (
	"net"
	"os"
	"testing"
	"time"
)

// TestHTTPRulesDenied has policy deny connections that go through the proxy, and wait for nothing: both the client's
// policy and the server's. The client hears of it at once, though policy accepts no packet of the connection any more.
func TestHTTPRulesDenied(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d} {
		serveWeb(t, p)
	}
	n.forEachFamily(func(t *testing.T, six bool) {
		for pod, cases := range map[string][]httpCase{"a": n.httpEgress(six)[:4], "b": n.httpIngress(six)[:4]} {
			direction := map[string]string{"a": "egress", "b": "ingress"}[pod]
			policy := func(rules string) {
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: " + pod + "}}, " + direction + ": [{" + rules + "}]}")
			}
			policy(publicOnly)
			open := map[string]net.Conn{}
			for _, c := range cases {
				open[c.name] = keptRequest(t, c.from.Namespace, c.to, "/public/x")
			}
			policy("toPorts: [{ports: [{port: '1'}]}]")
			for name, conn := range open {
				if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
					t.Errorf("%s, by the policy of %s: a connection that policy denies ends with %v", name, pod, err)
				}
			}
		}
	})
}
