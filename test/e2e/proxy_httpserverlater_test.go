package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestHTTPRulesServerComesLater opens a connection through the proxy to an address that no pod has yet, and keeps it
// open with denied requests. Then a pod gets the address, whose policy accepts other requests. The rules of both ends
// have to hold for it.
func TestHTTPRulesServerComesLater(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", six), func(t *testing.T) {
			n := newServiceNodes(t, nftablesMode{})
			n.label()
			ingress := strings.Replace(ciliumPolicy("{endpointSelector: {}, ingress: [{"+strings.Replace(publicOnly, "/public/.*", "/only", 1)+"}]}"), "name: web", "name: only", 1)
			if _, err := n.one.api.PutPolicies(n.Context(), []byte(ingress)); err != nil {
				t.Fatal(err)
			}
			n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
			next := n.a.addr(six)
			for _, p := range []party{n.b, n.c} {
				if p.addr(six).Compare(next) > 0 {
					next = p.addr(six)
				}
			}
			server := netip.AddrPortFrom(next.Next(), webPort)
			conn, err := n.a.Dial(server, 5*time.Second)
			if err != nil {
				t.Fatalf("no connection to %s, which nobody has: %v", server, err)
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			request := func(path string) (int, string, error) {
				_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, server)
				response, err := http.ReadResponse(answers, nil)
				if err != nil {
					return 0, "", err
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				return response.StatusCode, string(body), err
			}
			if status, _, err := request("/private"); err != nil || status != http.StatusForbidden {
				t.Fatalf("before the pod is there: %d, %v", status, err)
			}
			e := n.one.named("demo", "e").party("e")
			if e.addr(six) != server.Addr() {
				t.Fatalf("the pod has got %s, and not %s", e.addr(six), server.Addr())
			}
			serveWeb(t, e)
			if status, body, err := get(webClient(t, n.a.Namespace, false), server, "/public/x"); err != nil || status != http.StatusForbidden {
				t.Fatalf("a new connection: %d %q, %v", status, body, err)
			}
			if status, body, err := request("/public/x"); err == nil && status == http.StatusOK {
				t.Errorf("the connection that is older than the pod: %d %q: it has bypassed the pod's policy", status, body)
			} else {
				t.Logf("the connection that is older than the pod: %d %q, %v", status, body, err)
			}
		})
	}
}
