package e2e

import (
	"net/http"
	"testing"
	"time"
)

// TestOpenConnectionsRulesReturn has connections through the proxy when the layer 7 rules go, and come back: they stay
// open, and the rules decide about their next request.
func TestOpenConnectionsRulesReturn(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		serveWeb(t, p)
	}
	const egress, ingress = "egress: [{" + publicOnly + "}]", "ingress: [{" + publicOnly + "}]"
	n.forEachFamily(func(t *testing.T, six bool) {
		toBoth := n.httpEgress(six)[:2]
		for _, of := range []struct {
			name, spec string
			cases      []httpCase
		}{
			{"egress", "{endpointSelector: {matchLabels: {app: a}}, " + egress + "}", n.httpEgress(six)},
			{"ingress", "{endpointSelector: {matchLabels: {app: b}}, " + ingress + "}", n.httpIngress(six)},
			{"both", "{endpointSelector: {}, " + ingress + ", " + egress + "}", toBoth},
		} {
			n.ciliumPolicy(of.spec)
			var open []*openRequest
			ask := func(when, path string, want int) {
				t.Helper()
				for _, o := range open {
					if status, source, err := o.ask(path); err != nil || status != want || want == http.StatusOK && o.source != "" && source != o.source {
						t.Errorf("%s, %s, %s: %s: %d %q, %v: want %d as %q", of.name, o.name, when, path, status, source, err, want, o.source)
					} else if want == http.StatusOK {
						o.source = source
					}
				}
			}
			for _, c := range of.cases {
				if c.masqueraded { // the way of its packets is by the rules, and not by its socket
					continue
				}
				conn, err := c.from.Dial(c.to, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				open = append(open, &openRequest{httpCase: c, conn: conn})
			}
			ask("the rules of before", "/public/x", http.StatusOK)
			ask("the rules of before", "/private", http.StatusForbidden)
			if err := n.one.api.DeletePolicy(n.Context(), "CiliumNetworkPolicy", "demo", "web"); err != nil {
				t.Fatal(err)
			}
			ask("no rules", "/private", http.StatusOK)
			for _, spec := range []string{of.spec, "{endpointSelector: {}, " + ingress + ", " + egress + "}"} {
				n.ciliumPolicy(spec)
				ask("rules again", "/private", http.StatusForbidden)
				ask("rules again", "/public/x", http.StatusOK)
			}
		}
	})
}
