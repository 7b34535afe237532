package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// requestText is [flowText] with the request.
func requestText(f v1.Flow) string {
	text := flowText(f)
	if f.HTTP != nil {
		text += fmt.Sprintf(" %s %s %d", f.HTTP.Method, f.HTTP.Path, f.HTTP.Status)
	}
	if f.DNS != nil {
		text += fmt.Sprintf(" %s %s %s", f.DNS.Type, f.DNS.Name, f.DNS.Code)
	}
	if f.HTTP != nil || f.DNS != nil {
		text += " " + f.Reason
	}
	return text
}

// requestFlows counts the flows to pods' ports for HTTP and DNS since one, when the last of them is there.
func (n *serviceNodes) requestFlows(since uint64, last string) (count map[string]int) {
	n.Helper()
	testutil.Eventually(n, func() error {
		count = map[string]int{}
		for f, err := range n.one.api.Flows(n.Context(), client.FlowOptions{Since: since}) {
			if err != nil {
				return err
			}
			if f.Lost > 0 {
				return fmt.Errorf("%d flows were lost", f.Lost)
			}
			if f.To.Port == webPort || f.To.Port == dnsPort {
				count[requestText(f)]++
			}
		}
		for text := range count {
			if strings.HasSuffix(text, last) {
				return nil
			}
		}
		return fmt.Errorf("there is no flow that ends with %q among %q", last, slices.Sorted(maps.Keys(count)))
	})
	return count
}

// TestRequestFlows: a connection through the proxy is shown once, with the addresses that its client has used, and each
// of its requests with what became of it.
func TestRequestFlows(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]func(*testing.T) *serviceNodes{
		"within the agent": func(t *testing.T) *serviceNodes {
			n := newServiceNodes(t, nftablesMode{})
			n.label()
			for _, p := range []party{n.a, n.b, n.d, n.outside} {
				serveWeb(t, p)
			}
			return n
		},
		"porin-proxy": func(t *testing.T) *serviceNodes { n, _ := newExternal(t); return n },
	} {
		t.Run(name, func(t *testing.T) {
			n := nodes(t)
			for _, p := range []party{n.b, n.d} {
				serveNames(t, p)
			}
			n.forEachFamily(func(t *testing.T, six bool) {
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
				n.checkRequestFlows(t, six, "egress", n.httpEgress(six))
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}")
				n.checkRequestFlows(t, six, "ingress", n.httpIngress(six))
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + exampleNames + "}]}")
				n.checkQueryFlows(t, six)
			})
		})
	}
}

func (n *serviceNodes) checkRequestFlows(t *testing.T, six bool, direction string, cases []httpCase) {
	t.Helper()
	for _, c := range cases {
		_, since := n.flowsNow()
		c.check(t, six) // two connections with a request each
		got := n.requestFlows(since, "GET /private 403 no-rule")
		ends := fmt.Sprintf("%s -> %s:%d", n.flowEnd(c.from, six), n.flowEnd(n.server(c), six), webPort)
		rule := ", " + direction + " rule 0 of web"
		by := ""
		if !n.isBackend(c, six) && c.from.name != n.d.name { // whose own node has translated the Service
			by = " by " + c.to.String()
		}
		want := map[string]int{
			"allowed TCP " + ends + by + rule:                         2,
			"allowed TCP " + ends + rule + " GET /public/x 200 ":      1,
			"denied TCP " + ends + rule + " GET /private 403 no-rule": 1,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, IPv6 %v (-want +got):\n%s", c.name, six, diff)
		}
	}
}

// flowEnd is a party as [flowText] shows it on the first node.
func (n *serviceNodes) flowEnd(p party, six bool) string {
	if p.name == "a" || p.name == "b" || p.name == "c" {
		return fmt.Sprintf("demo/%s %s", p.name, p.name)
	}
	return "world " + p.addr(six).String()
}

func (n *serviceNodes) server(c httpCase) party {
	return map[string]party{"b": n.b, "d": n.d, "outside": n.outside}[c.server]
}

// isBackend reports whether the client has addressed the server itself.
func (n *serviceNodes) isBackend(c httpCase, six bool) bool {
	return c.to == n.server(c).at(six, webPort)
}

// checkQueryFlows has a datagram, which is no connection, and a connection.
func (n *serviceNodes) checkQueryFlows(t *testing.T, six bool) {
	t.Helper()
	for network, connections := range map[string]int{"udp": 0, "tcp": 2} {
		for _, server := range []party{n.b, n.d} {
			_, since := n.flowsNow()
			for _, name := range []string{"www.example.com.", "www.example.org."} {
				if _, err := n.a.resolve(network, server.at(six, dnsPort), name); err != nil {
					t.Errorf("%s by %s: %v", name, network, err)
				}
			}
			protocol := strings.ToUpper(network)
			ends := fmt.Sprintf(" %s demo/a a -> %s:%d, egress rule 0 of web", protocol, n.flowEnd(server, six), dnsPort)
			got := n.requestFlows(since, "A www.example.org NXDOMAIN policy")
			want := map[string]int{"allowed" + ends + " A www.example.com NOERROR ": 1, "denied" + ends + " A www.example.org NXDOMAIN policy": 1}
			if connections > 0 {
				want["allowed"+ends] = connections
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("queries by %s, IPv6 %v (-want +got):\n%s", network, six, diff)
			}
		}
	}
}
