package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestHTTPRulesPathMTU: a link on the way to the server has a lower MTU than the node, and a router says so by ICMP. A
// large request gets there, with rules and without.
func TestHTTPRulesPathMTU(t *testing.T) {
	fabric := testutil.NewFabric(t)
	one, two := rigOn(t, fabric.NewNode(t)), rigOn(t, fabric.NewNode(t))
	fabric.RoutePods(t, one.node)
	fabric.RoutePods(t, two.node)
	n := serviceNodesOn(t, nftablesMode{}, fabric, one, two)
	n.label()
	serveWeb(t, n.d)
	fabric.SetMTU(t, two.node, 1300)
	for _, rules := range []bool{false, true} {
		if rules {
			n.ciliumPolicy(`{endpointSelector: {matchLabels: {app: a}}, egress: [{toPorts: [{ports: [{port: "8081", protocol: TCP}], rules: {http: [{method: POST}]}}]}]}`)
		}
		for _, six := range []bool{false, true} {
			client := webClient(t, n.a.Namespace, false)
			response, err := client.Post("http://"+n.d.at(six, webPort).String()+"/", "text/plain", bytes.NewReader(make([]byte, 1<<20)))
			if err != nil {
				t.Errorf("rules %v, IPv6 %v: %v", rules, six, err)
				continue
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("rules %v, IPv6 %v: %s", rules, six, fmt.Sprint(response.StatusCode, string(body), err))
			}
		}
	}
}

// TestHTTPRulesPathMTUIngress is the same for a large answer to a client elsewhere.
func TestHTTPRulesPathMTUIngress(t *testing.T) {
	fabric := testutil.NewFabric(t)
	one, two := rigOn(t, fabric.NewNode(t)), rigOn(t, fabric.NewNode(t))
	fabric.RoutePods(t, one.node)
	fabric.RoutePods(t, two.node)
	n := serviceNodesOn(t, nftablesMode{}, fabric, one, two)
	n.label()
	for _, six := range []bool{false, true} {
		listener := n.b.Listen(t, n.b.at(six, webPort))
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(listener) }()
		t.Cleanup(func() { server.Close(); <-served })
	}
	fabric.SetMTU(t, two.node, 1300)
	// The client's own MTU is 1500, so that it does not ask for smaller segments.
	for _, rules := range []bool{false, true} {
		if rules {
			n.ciliumPolicy(`{endpointSelector: {matchLabels: {app: b}}, ingress: [{toPorts: [{ports: [{port: "8081", protocol: TCP}], rules: {http: [{method: GET}]}}]}]}`)
		}
		for _, six := range []bool{false, true} {
			status, body, err := get(webClient(t, n.d.Namespace, false), n.b.at(six, webPort), "/")
			if err != nil || status != http.StatusOK || len(body) != 1<<20 {
				t.Errorf("rules %v, IPv6 %v: %d, %d bytes, %v", rules, six, status, len(body), err)
			}
		}
	}
}
