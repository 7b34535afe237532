package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// webPort is where pods serve HTTP.
const webPort = 8081

// serveWeb answers with the server's name and the client's address, on the addresses of the party.
func serveWeb(t *testing.T, p party) {
	t.Helper()
	for _, six := range []bool{false, true} {
		listener := p.Listen(t, p.at(six, webPort))
		serve(t, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				echo(w)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s %s", p.name, r.RemoteAddr)
		}))
	}
}

// serve has an HTTP server until the end of the test.
func serve(t *testing.T, listener net.Listener, handler http.Handler) {
	t.Helper()
	server := &http.Server{Handler: handler}
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

// echo is a server of another protocol, which sends back what it gets.
func echo(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, err = fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
	if err == nil {
		_, _ = io.Copy(conn, buffered)
	}
}

// webClient requests from a namespace. Each request has a connection of its own unless keep.
func webClient(t *testing.T, from *testutil.Namespace, keep bool) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: !keep, DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
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

// TestHTTPRules has an HTTP rule for each direction, and clients and servers on this node and on another one, directly
// and through Services.
func TestHTTPRules(t *testing.T) {
	t.Parallel()
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

// proxySysctls are settings of a node with which redirects have to work: whether packets are received by the way that
// answers take, with marks or without, whether a SYN is answered without state, and whether sockets are found before
// routes.
var proxySysctls = map[string]map[string]string{
	"loose reverse path":                {"net/ipv4/conf/all/rp_filter": "2"},
	"strict reverse path":               {"net/ipv4/conf/all/rp_filter": "1"},
	"strict reverse path, with marks":   {"net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/all/src_valid_mark": "1"},
	"SYN cookies":                       {"net/ipv4/tcp_syncookies": "2"},
	"no early demultiplexing":           {"net/ipv4/ip_early_demux": "0"},
	"accepted sockets have marks":       {"net/ipv4/tcp_fwmark_accept": "1", "net/ipv4/fwmark_reflect": "1", "net/ipv6/fwmark_reflect": "1"},
	"connections are not picked up":     {"net/netfilter/nf_conntrack_tcp_loose": "0"},
	"all of them, and no early demux":   {"net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/all/src_valid_mark": "1", "net/ipv4/tcp_syncookies": "2", "net/ipv4/ip_early_demux": "0"},
	"no path MTU discovery, no options": {"net/ipv4/ip_no_pmtu_disc": "1", "net/ipv4/tcp_timestamps": "0"},
}

func TestHTTPRulesSysctls(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		serveWeb(t, p)
	}
	n.ciliumPolicy("{endpointSelector: {}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}")
	for name, sysctls := range proxySysctls {
		t.Run(name, func(t *testing.T) {
			for sysctl, value := range sysctls {
				var before []byte
				if err := n.node1.Do(func() (err error) { before, err = os.ReadFile("/proc/sys/" + sysctl); return err }); err != nil {
					t.Fatal(err)
				}
				n.node1.Sysctl(t, sysctl, value)
				t.Cleanup(func() { n.node1.Sysctl(t, sysctl, string(before)) })
			}
			for _, six := range []bool{false, true} {
				checkHTTP(t, six, n.httpEgress(six))
			}
		})
	}
}

// TestHTTPRulesChange changes the policy while connections are open.
func TestHTTPRulesChange(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	const rule = "{endpointSelector: {matchLabels: {app: b}}, ingress: [{toPorts: [{ports: [{port: \"8081\", protocol: TCP}], rules: {http: [{path: \"%s\"}]}}]}]}"
	for _, six := range []bool{false, true} {
		server := n.b.at(six, webPort)
		n.ciliumPolicy(fmt.Sprintf(rule, "/one"))
		client := webClient(t, n.a.Namespace, true)
		expect := func(path string, want int) (source string) {
			t.Helper()
			status, body, err := get(client, server, path)
			if err != nil || status != want {
				t.Errorf("IPv6 %v: %s: %d %q, %v, want %d", six, path, status, body, err, want)
			}
			return body
		}
		source := expect("/one", http.StatusOK)
		expect("/two", http.StatusForbidden)
		n.ciliumPolicy(fmt.Sprintf(rule, "/two"))
		expect("/one", http.StatusForbidden)
		if now := expect("/two", http.StatusOK); now != source {
			t.Errorf("IPv6 %v: the server saw %q and then %q: the connection has not stayed", six, source, now)
		}
		// Without layer 7 rules the open connection goes on through the proxy, and a new one does not.
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [{toPorts: [{ports: [{port: \"8081\"}]}]}]}")
		if now := expect("/three", http.StatusOK); now != source {
			t.Errorf("IPv6 %v: the server saw %q and then %q: the connection has not stayed", six, source, now)
		}
		status, body, err := get(webClient(t, n.a.Namespace, false), server, "/three")
		if _, address, _ := strings.Cut(body, " "); err != nil || status != http.StatusOK || netip.MustParseAddrPort(address).Port() >= 61000 {
			t.Errorf("IPv6 %v: without rules: %d %q, %v: want a direct connection", six, status, body, err)
		}
		// Nothing is allowed any more: the connection is closed, idle as it is.
		conn, err := n.a.Dial(server, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		n.ciliumPolicy(fmt.Sprintf(rule, "/one"))
		idle := keptRequest(t, n.a.Namespace, server, "/one")
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [{}]}")
		if err := idle.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := idle.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("IPv6 %v: a connection that no policy accepts ends with %v", six, err)
		}
	}
}

// keptRequest returns a connection after one answered request.
func keptRequest(t *testing.T, from *testutil.Namespace, server netip.AddrPort, path string) net.Conn {
	t.Helper()
	conn, err := from.Dial(server, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, server)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", path, response, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return conn
}

// TestHTTPRulesAppear has a rule come while a direct connection is open: it is reset, and does not bypass the rule.
func TestHTTPRulesAppear(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	serveWeb(t, n.d)
	for _, six := range []bool{false, true} {
		servers := map[string]netip.AddrPort{"direct": n.b.at(six, webPort), "Service": n.at(web, six), "other node": n.d.at(six, webPort)}
		open := map[string]net.Conn{}
		for name, server := range servers {
			open[name] = keptRequest(t, n.a.Namespace, server, "/private")
		}
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
		for name, conn := range open {
			fmt.Fprintf(conn, "GET /private HTTP/1.1\r\nHost: x\r\n\r\n")
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(make([]byte, 100)); n > 0 || !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("IPv6 %v: %s: read %d bytes, %v: want a reset", six, name, n, err)
			}
		}
		if err := n.one.api.DeletePolicy(n.Context(), "CiliumNetworkPolicy", "demo", "web"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHTTPRulesRestart stops and kills the agent: open connections end, and new ones wait for the next agent.
func TestHTTPRulesRestart(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	serveWeb(t, n.d)
	serveWeb(t, n.node1)
	n.ciliumPolicy(publicBothWays)
	for name, end := range map[string]func(){"stop": func() { n.one.agent.Stop(t) }, "kill": func() { n.one.agent.Kill(t) }} {
		t.Run(name, func(t *testing.T) {
			keptRequest(t, n.a.Namespace, n.d.at(false, webPort), "/public/x")
			end()
			sent := 0
			waiting := make(chan error, 10)
			for _, way := range [][2]party{{n.a, n.b}, {n.a, n.d}, {n.a, n.node1}, {n.d, n.b}, {n.outside, n.b}} {
				for _, six := range []bool{false, true} {
					sent++
					client, server := webClient(t, way[0].Namespace, false), way[1]
					go func() {
						status, _, err := get(client, server.at(six, webPort), "/public/x")
						if err == nil && status != http.StatusOK {
							err = fmt.Errorf("status %d", status)
						}
						if err != nil {
							err = fmt.Errorf("%s to %s, IPv6 %v: %w", way[0].name, server.name, six, err)
						}
						waiting <- err
					}()
				}
			}
			select {
			case err := <-waiting:
				sent--
				t.Errorf("a request while the agent was away did not wait: %v", err)
			case <-time.After(500 * time.Millisecond):
			}
			n.one.agent.Restart(t)
			for range sent {
				if err := <-waiting; err != nil {
					t.Errorf("a request that was sent while the agent was away: %v", err)
				}
			}
			for _, six := range []bool{false, true} {
				for _, c := range n.httpEgress(six)[:4] {
					c.check(t, six)
				}
			}
		})
	}
}

// TestHTTPRulesDelete deletes the client's pod while a request is being served: nothing of it is left.
func TestHTTPRulesDelete(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}")
	conns := []net.Conn{keptRequest(t, n.a.Namespace, n.b.at(false, webPort), "/public/x"), keptRequest(t, n.a.Namespace, n.b.at(true, webPort), "/public/x")}
	if open := n.proxySockets(); open < 4 {
		t.Fatalf("%d sockets of the proxy, want at least 4", open)
	}
	if err := n.one.cni.Del(n.podB.Container); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error {
		if open := n.proxySockets(); open > 0 {
			return fmt.Errorf("%d sockets of the proxy are left", open)
		}
		return nil
	})
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("the client's connection ends with %v", err)
		}
	}
}

// proxySockets counts the connections of the first node that have ports of pods' servers.
func (n *serviceNodes) proxySockets() (open int) {
	n.Helper()
	var sockets []*netlink.Socket
	err := n.one.node.Do(func() (err error) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, listErr := netlink.SocketDiagTCP(family)
			sockets, err = append(sockets, list...), errors.Join(err, listErr)
		}
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	for _, s := range sockets {
		if s.State == netlink.TCP_ESTABLISHED && (s.ID.SourcePort == webPort || s.ID.DestinationPort == webPort) {
			open++
		}
	}
	return open
}

// TestHTTPRulesOfNodes has agents on both nodes, which know each other: each applies the rules of its own pods.
func TestHTTPRulesOfNodes(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		n := webNodes(t, c, fabric, nftablesMode{})
		for _, six := range []bool{false, true} {
			checkHTTP(t, six, append(n.betweenNodes(six), []httpCase{
				{"a to d by a Service", n.a, n.at(remoteWeb, six), "d", false},
				{"d to b by a Service", n.d, n.at(web, six), "b", false},
			}...))
		}
	})
}

// TestHTTPRulesWithoutServices needs no program that makes rules for Services.
func TestHTTPRulesWithoutServices(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		n := webNodes(t, c, fabric, nil)
		serveNames(t, n.d)
		for _, six := range []bool{false, true} {
			checkHTTP(t, six, n.betweenNodes(six))
			n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}, {" + exampleNames + "}]}")
			checkDNS(t, six, []httpCase{{"a to d", n.a, n.d.at(six, dnsPort), "d", false}})
			checkHTTP(t, six, n.betweenNodes(six))
		}
	})
}

// webNodes serves HTTP in pods of two nodes that know each other, and has rules for all pods of either.
func webNodes(t *testing.T, c *nodeGroup, fabric *testutil.Fabric, mode proxyMode) *serviceNodes {
	t.Helper()
	n := unrestrictedWebNodes(t, c, fabric, mode)
	const queries = `toPorts: [{ports: [{port: "5053", protocol: ANY}]}]`
	c.ciliumPolicy(t, "{endpointSelector: {}, ingress: [{"+publicOnly+"}, {"+queries+"}], egress: [{"+publicOnly+"}]}")
	return n
}

// ciliumPolicy applies a policy on all nodes.
func (c *nodeGroup) ciliumPolicy(t *testing.T, spec string) {
	t.Helper()
	for _, r := range c.nodes {
		if _, err := r.api.PutPolicies(t.Context(), []byte(ciliumPolicy(spec))); err != nil {
			t.Fatal(err)
		}
	}
}

// unrestrictedWebNodes are those without rules.
func unrestrictedWebNodes(t *testing.T, c *nodeGroup, fabric *testutil.Fabric, mode proxyMode) *serviceNodes {
	t.Helper()
	n := serviceNodesOn(t, mode, fabric, c.nodes[0], c.nodes[1])
	n.label()
	n.two.setLabel("demo", "d", "d")
	for _, p := range []party{n.a, n.b, n.d} {
		serveWeb(t, p)
	}
	c.waitForPing(n.a.Namespace, n.d.ipv4)
	c.waitForPing(n.a.Namespace, n.d.ipv6)
	return n
}

func (n *serviceNodes) betweenNodes(six bool) []httpCase {
	return []httpCase{
		{"a to d", n.a, n.d.at(six, webPort), "d", false},
		{"d to a", n.d, n.a.at(six, webPort), "a", false},
		{"a to b", n.a, n.b.at(six, webPort), "b", false},
	}
}
