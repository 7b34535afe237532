package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// webPort is where pods serve HTTP.
const webPort = 8081

// serveWeb answers with the server's name and the client's address, on the addresses of the party.
func serveWeb(t *testing.T, p party) {
	t.Helper()
	for _, six := range []bool{false, true} {
		listener := p.Listen(t, p.at(six, webPort))
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s %s", p.name, r.RemoteAddr)
		})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(listener)
		}()
		t.Cleanup(func() {
			server.Close()
			<-served
		})
	}
}

// webClient requests from a namespace. Each request has a connection of its own unless keep.
func webClient(t *testing.T, from *testutil.Namespace, keep bool) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: !keep, Dial: func(_, address string) (net.Conn, error) {
		return from.Dial(netip.MustParseAddrPort(address), 5*time.Second)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// get returns the status and the body.
func get(client *http.Client, server netip.AddrPort, path string) (int, string, error) {
	response, err := client.Get("http://" + server.String() + path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func ciliumPolicy(spec string) string {
	return "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: web, namespace: demo}\nspec: " + spec + "\n"
}

func (n *serviceNodes) ciliumPolicy(spec string) {
	n.Helper()
	if _, err := n.one.api.PutPolicies(n.Context(), []byte(ciliumPolicy(spec))); err != nil {
		n.Fatal(err)
	}
}

// httpCase is a client and a server. masqueraded: the server sees the node's address.
type httpCase struct {
	name        string
	from        party
	to          netip.AddrPort
	server      string
	masqueraded bool
}

// checkHTTP expects that the client gets what the rules allow, as itself, and else a 403.
func (c httpCase) check(t *testing.T, six bool) {
	t.Helper()
	client := webClient(t, c.from.Namespace, false)
	status, body, err := get(client, c.to, "/public/x?y=1")
	if err != nil || status != http.StatusOK {
		t.Errorf("%s, IPv6 %v: allowed path: %d %q, %v", c.name, six, status, body, err)
		return
	}
	server, address, _ := strings.Cut(body, " ")
	source, err := netip.ParseAddrPort(address)
	if err != nil || server != c.server || !c.masqueraded && (source.Addr() != c.from.addr(six) || source.Port() < 61000) {
		t.Errorf("%s, IPv6 %v: %s has seen %s, want %s and the proxy's ports", c.name, six, server, address, c.from.addr(six))
	}
	if status, body, err := get(client, c.to, "/private"); err != nil || status != http.StatusForbidden {
		t.Errorf("%s, IPv6 %v: denied path: %d %q, %v", c.name, six, status, body, err)
	}
}

const publicOnly = `toPorts: [{ports: [{port: "8081", protocol: TCP}], rules: {http: [{method: GET, path: "/public/.*"}]}}]`

// TestHTTPRules has an HTTP rule for each direction, and clients and servers on this node and on another one, directly and through Services.
func TestHTTPRules(t *testing.T) {
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		for _, p := range []party{n.a, n.b, n.d, n.outside} {
			serveWeb(t, p)
		}
		n.forEachFamily(func(t *testing.T, six bool) {
			n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
			checkHTTP(t, six, n.httpEgress(six))
			n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}")
			checkHTTP(t, six, n.httpIngress(six))
			if status, body, err := get(webClient(t, n.node1.Namespace, false), n.b.at(six, webPort), "/private"); err != nil || status != http.StatusOK {
				t.Errorf("the node to b: %d %q, %v", status, body, err)
			}
			n.ciliumPolicy("{endpointSelector: {}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}")
			checkHTTP(t, six, n.httpEgress(six))
		})
	})
}

func checkHTTP(t *testing.T, six bool, cases []httpCase) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range cases {
		all.Go(func() { c.check(t, six) })
	}
	all.Wait()
}

func (n *serviceNodes) httpEgress(six bool) []httpCase {
	return []httpCase{
		{"a to b", n.a, n.b.at(six, webPort), "b", false},
		{"a to b by a Service", n.a, n.at(web, six), "b", false},
		{"a to the other node's pod", n.a, n.d.at(six, webPort), "d", false},
		{"a to the other node's pod by a Service", n.a, n.at(remoteWeb, six), "d", false},
		{"a to the other node's pod by a node port", n.a, n.nodePort(remoteWeb, n.node1, six), "d", true},
		{"a to the outside", n.a, n.outside.at(six, webPort), "outside", true},
	}
}

func (n *serviceNodes) httpIngress(six bool) []httpCase {
	return []httpCase{
		{"a to b", n.a, n.b.at(six, webPort), "b", false},
		{"a to b by a Service", n.a, n.at(web, six), "b", false},
		{"the other node's pod to b", n.d, n.b.at(six, webPort), "b", false},
		{"the other node's pod to b by a Service", n.d, n.at(web, six), "b", false},
		{"the outside to b by a node port", n.outside, n.nodePort(web, n.node1, six), "b", true},
	}
}
