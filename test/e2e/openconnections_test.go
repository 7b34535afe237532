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
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// openCase is a connection that gets layer 7 rules while it is open.
type openCase struct {
	name   string
	from   party
	to     netip.AddrPort
	closed bool
}

// occupy has a process in the party's namespace, as every pod has.
func occupy(t *testing.T, p party) {
	t.Helper()
	process := exec.Command("sleep", "600")
	if err := p.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
}

// waitsFor reports what a client gets that only waits: nil when nothing has come in the time.
func waitsFor(t *testing.T, conn net.Conn, within time.Duration) error {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// newOccupiedNodes are nodes with web servers in a, b and d, and processes in their namespaces, so that connections of pods can be closed.
func newOccupiedNodes(t *testing.T, args ...string) *serviceNodes {
	t.Helper()
	n := newServiceNodes(t, nftablesMode{}, args...)
	n.label()
	for _, p := range []party{n.a, n.b, n.d} {
		serveWeb(t, p)
		occupy(t, p)
	}
	return n
}

// TestOpenConnections has connections that wait for data when layer 7 rules come: those that the rules are for are closed at once, others are not.
func TestOpenConnections(t *testing.T) {
	t.Parallel()
	n := newOccupiedNodes(t)
	n.forEachFamily(func(t *testing.T, six bool) {
		for spec, cases := range map[string][]openCase{
			"{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}, {toPorts: [{ports: [{port: '8080'}]}]}]}": {
				{"a to b", n.a, n.b.at(six, webPort), true},
				{"a to b by a Service", n.a, n.at(web, six), true},
				{"a to the other node's pod", n.a, n.d.at(six, webPort), true},
				{"a to the other node's pod by a Service", n.a, n.at(remoteWeb, six), true},
				{"a to a port without rules", n.a, n.b.at(six, backendPort), false},
				{"another pod", n.c, n.b.at(six, webPort), false},
				{"to a", n.c, n.a.at(six, webPort), false},
			},
			"{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}, {toPorts: [{ports: [{port: '8080'}]}]}]}": {
				{"a to b", n.a, n.b.at(six, webPort), true},
				{"a to b by a Service", n.a, n.at(web, six), true},
				{"the other node's pod to b", n.d, n.b.at(six, webPort), true},
				{"the node, which every pod accepts", n.node1, n.b.at(six, webPort), false},
				{"a port without rules", n.a, n.b.at(six, backendPort), false},
			},
		} {
			n.ciliumPolicy(noRules)
			var conns []net.Conn
			for _, c := range cases {
				conn, err := c.from.Dial(c.to, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conns = append(conns, conn)
			}
			began := time.Now()
			n.ciliumPolicy(spec)
			took := time.Since(began)
			proxied, err := n.a.Dial(n.b.at(six, webPort), 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer proxied.Close()
			for i, c := range cases {
				within := 200 * time.Millisecond
				if c.closed {
					within = 2 * time.Second
				}
				if err := waitsFor(t, conns[i], within); (err != nil) != c.closed {
					t.Errorf("IPv6 %v, %s: %v, want it closed: %v", six, c.name, err, c.closed)
				}
			}
			// What is open through the proxy stays when further rules come.
			n.ciliumPolicy("{endpointSelector: {}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}")
			if err := waitsFor(t, proxied, 200*time.Millisecond); err != nil {
				t.Errorf("IPv6 %v: a connection through the proxy: %v", six, err)
			}
			t.Logf("IPv6 %v: the policy was in force after %v", six, took)
		}
	})
}

// TestOpenConnectionsKnownRules has a peer get layer 7 rules that the pod has for another peer already: by a change of the policy, and of the peer's labels.
func TestOpenConnectionsKnownRules(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	for _, p := range []party{n.a, n.b, n.c} {
		occupy(t, p)
	}
	labelA := func(app string) {
		t.Helper()
		if _, err := n.one.api.UpdateEndpoint(t.Context(), "pod-name:demo/a", v1.EndpointPatch{Labels: map[string]string{"app": app}}); err != nil {
			t.Fatal(err)
		}
	}
	from := func(app, rest string) string {
		return "{fromEndpoints: [{matchLabels: {app: " + app + "}}], " + rest + "}"
	}
	before := "{endpointSelector: {matchLabels: {app: b}}, ingress: [" + from("c", publicOnly) + ", " + from("a", "toPorts: [{ports: [{port: '8080'}, {port: '8081'}]}]") + "]}"
	n.forEachFamily(func(t *testing.T, six bool) {
		for name, change := range map[string]func(){
			"policy": func() {
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [" + from("c", publicOnly) + ", " + from("a", publicOnly) + ", " + from("a", "toPorts: [{ports: [{port: '8080'}]}]") + "]}")
			},
			"labels": func() { labelA("c") },
		} {
			labelA("a")
			n.ciliumPolicy(before)
			var conns []net.Conn
			for _, port := range []uint16{webPort, backendPort} {
				conn, err := n.a.Dial(n.b.at(six, port), 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conns = append(conns, conn)
			}
			change()
			if err := waitsFor(t, conns[0], 2*time.Second); err == nil {
				t.Errorf("IPv6 %v, change of the %s: the connection that gets rules is not closed", six, name)
			}
			if err := waitsFor(t, conns[1], 200*time.Millisecond); err != nil {
				t.Errorf("IPv6 %v, change of the %s: a connection to a port without rules: %v", six, name, err)
			}
		}
		labelA("a")
	})
}

const noRules = "{endpointSelector: {matchLabels: {app: nobody}}, ingress: [{}]}"

// openRequest is a connection that was opened directly, and is used again.
type openRequest struct {
	httpCase
	conn   net.Conn
	source string // as the server has seen it
}

// ask sends a request by the connection. It returns how far that has come within a second.
func (o *openRequest) ask(path string) (status int, body string, err error) {
	if err := o.conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, "", err
	}
	fmt.Fprintf(o.conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(o.conn), nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// TestOpenConnectionsKept has connections that are open when layer 7 rules come go on as they are, also when the agent is replaced, while new ones go
// through the proxy; until policy denies them.
func TestOpenConnectionsKept(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{}, "--proxy-open-connections=keep")
	n.label()
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		serveWeb(t, p)
		occupy(t, p)
	}
	n.forEachFamily(func(t *testing.T, six bool) {
		for _, of := range []struct {
			direction, pod string
			cases          []httpCase
		}{{"egress", "a", n.httpEgress(six)}, {"ingress", "b", n.httpIngress(six)}} {
			policy := func(rules string) {
				t.Helper()
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: " + of.pod + "}}, " + of.direction + ": [{" + rules + "}]}")
			}
			n.ciliumPolicy(noRules)
			open := openRequests(t, of.cases)
			policy(publicOnly)
			open.goOn(t, of.direction+": rules have come")
			checkHTTP(t, six, of.cases)
			policy(strings.Replace(publicOnly, "GET", "G.*", 1))
			n.one.agent.Restart(t)
			open.goOn(t, of.direction+": after a restart")
			checkHTTP(t, six, of.cases)
			policy("toPorts: [{ports: [{port: '1'}]}]")
			open.end(t, of.direction+": denied")
		}
	})
}

// TestOpenConnectionsKeptBetweenNodes has them past the stack, between pods of nodes that know each other and both have rules for them.
func TestOpenConnectionsKeptBetweenNodes(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		n := unrestrictedWebNodes(t, c, fabric, nil)
		var open keptRequests
		for _, six := range []bool{false, true} {
			open = append(open, openRequests(t, n.betweenNodes(six))...)
		}
		c.ciliumPolicy(t, "{endpointSelector: {}, ingress: [{"+publicOnly+"}], egress: [{"+publicOnly+"}]}")
		open.goOn(t, "rules have come")
		for _, six := range []bool{false, true} {
			checkHTTP(t, six, n.betweenNodes(six))
		}
		for _, r := range c.nodes {
			r.agent.Restart(t)
		}
		open.goOn(t, "after a restart")
		c.ciliumPolicy(t, "{endpointSelector: {}, ingress: [{fromEntities: [all]}]}")
		open.goOn(t, "without rules")
		c.ciliumPolicy(t, "{endpointSelector: {}, egress: [{toPorts: [{ports: [{port: '1'}]}]}]}")
		open.end(t, "denied")
	}, "--proxy-open-connections=keep")
}

// keptRequests are connections that were opened directly.
type keptRequests []*openRequest

func openRequests(t *testing.T, cases []httpCase) (open keptRequests) {
	t.Helper()
	for _, c := range cases {
		conn, err := c.from.Dial(c.to, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		o := &openRequest{httpCase: c, conn: conn}
		if _, o.source, err = o.ask("/private"); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		open = append(open, o)
	}
	return open
}

// goOn expects that each goes on as it was.
func (k keptRequests) goOn(t *testing.T, when string) {
	t.Helper()
	for _, o := range k {
		if status, source, err := o.ask("/private"); err != nil || status != http.StatusOK || source != o.source {
			t.Errorf("%s, %s: %d %q, %v: want it to go on as %q", when, o.name, status, source, err, o.source)
		}
	}
}

// end expects that no request is answered any more.
func (k keptRequests) end(t *testing.T, when string) {
	t.Helper()
	for _, o := range k {
		if status, _, err := o.ask("/private"); err == nil {
			t.Errorf("%s, %s: %d, want no answer", when, o.name, status)
		}
	}
}

// TestOpenConnectionsRace has connections opened all the time while layer 7 rules come and go: each is answered or closed, at both ends of the moment in which
// the rules come. Nobody waits for an answer that is dropped.
func TestOpenConnectionsRace(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d} {
		serveSlowly(t, p)
		occupy(t, p)
	}
	rules := "{endpointSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}"
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var asked, answered atomic.Int64
	for _, six := range []bool{false, true} {
		for _, c := range []openCase{
			{name: "a to b", from: n.a, to: n.b.at(six, webPort)},
			{name: "a to b by a Service", from: n.a, to: n.at(web, six)},
			{name: "the other node's pod to b", from: n.d, to: n.b.at(six, webPort)},
			{name: "a to the other node's pod", from: n.a, to: n.d.at(six, webPort)},
		} {
			for range 4 {
				clients.Go(func() {
					for ctx.Err() == nil {
						asked.Add(1)
						err := askOnce(c)
						if err == nil {
							answered.Add(1)
						} else if isTimeout(err) {
							t.Errorf("IPv6 %v, %s: %v: neither answered nor closed", six, c.name, err)
						}
					}
				})
			}
		}
	}
	for range 20 {
		n.ciliumPolicy(rules)
		time.Sleep(100 * time.Millisecond) // connections through the proxy
		n.ciliumPolicy(noRules)
		time.Sleep(100 * time.Millisecond) // direct ones
	}
	cancel()
	clients.Wait()
	t.Logf("%d of %d requests answered", answered.Load(), asked.Load())
	if answered.Load() < asked.Load()/2 {
		t.Errorf("%d of %d requests answered", answered.Load(), asked.Load())
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// serveSlowly has a server that needs a moment for each answer, so that rules come between request and answer.
func serveSlowly(t *testing.T, p party) {
	t.Helper()
	for _, six := range []bool{false, true} {
		serve(t, p.Listen(t, p.at(six, webPort)), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(10 * time.Millisecond)
			fmt.Fprint(w, p.name)
		}))
	}
}

// askOnce sends a request by a connection of its own, and waits for the first of the answer.
func askOnce(c openCase) error {
	conn, err := c.from.Dial(c.to, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "GET /public/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// TestOpenConnectionsHalfOpen has the server's first answer come when the rules are there already, and no socket closed as no process is seen in the pods: the
// client gets through with its next try, or is reset. It does not wait.
func TestOpenConnectionsHalfOpen(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		serveWeb(t, p)
	}
	rules := "{endpointSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}"
	n.forEachFamily(func(t *testing.T, six bool) {
		for _, c := range []struct {
			openCase
			server, client party // as the server sees the client
		}{
			{openCase{name: "a to b", from: n.a, to: n.b.at(six, webPort)}, n.b, n.a},
			{openCase{name: "a to b by a Service", from: n.a, to: n.at(web, six)}, n.b, n.a},
			{openCase{name: "a to the other node's pod", from: n.a, to: n.d.at(six, webPort)}, n.d, n.a},
			{openCase{name: "a to the other node's pod by a Service", from: n.a, to: n.at(remoteWeb, six)}, n.d, n.a},
			{openCase{name: "a to the outside", from: n.a, to: n.outside.at(six, webPort)}, n.outside, n.a},
			{openCase{name: "the other node's pod to b", from: n.d, to: n.b.at(six, webPort)}, n.b, n.d},
			{openCase{name: "the other node's pod to b by a Service", from: n.d, to: n.at(web, six)}, n.b, n.d},
			{openCase{name: "the outside to b by a node port", from: n.outside, to: n.nodePort(web, n.node1, six)}, n.b, n.node1},
		} {
			n.ciliumPolicy(noRules)
			answers := holdAnswers(t, c.server.Namespace, c.client.addr(six))
			done := make(chan error, 1)
			go func() { done <- askOnce(c.openCase) }()
			testutil.Eventually(t, answers.areHeld)
			n.ciliumPolicy(rules)
			answers.release(t)
			if err := <-done; isTimeout(err) {
				t.Errorf("IPv6 %v, %s: %v: neither answered nor closed", six, c.name, err)
			}
		}
	})
}

// heldAnswers is what a server's namespace sends to a client: it waits for the hardware address of a router.
type heldAnswers struct {
	server         *testutil.Namespace
	before, routes []netlink.Route // to the client
	router         *netlink.Neigh
}

// holdAnswers routes to the client by a router that is not there.
func holdAnswers(t *testing.T, server *testutil.Namespace, client netip.Addr) *heldAnswers {
	t.Helper()
	handle := server.Netlink(t)
	routes, err := handle.RouteGet(client.AsSlice())
	if err != nil || len(routes) == 0 {
		t.Fatalf("the route to %s: %v, %v", client, routes, err)
	}
	now, router := routes[0], netip.MustParseAddr("169.254.9.9")
	if client.Is6() {
		router = netip.MustParseAddr("fe80::99")
	}
	gateway := now.Gw
	if gateway == nil {
		gateway = client.AsSlice()
	}
	h := &heldAnswers{server: server, router: &netlink.Neigh{LinkIndex: now.LinkIndex, IP: router.AsSlice(), State: netlink.NUD_PERMANENT}}
	neighbours, err := handle.NeighList(now.LinkIndex, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, neighbour := range neighbours {
		if neighbour.IP.Equal(gateway) && len(neighbour.HardwareAddr) > 0 {
			h.router.HardwareAddr = neighbour.HardwareAddr
		}
	}
	if h.router.HardwareAddr == nil {
		t.Fatalf("%s has no hardware address in %v", gateway, neighbours)
	}
	to := nl.IPNet(netip.PrefixFrom(client, client.BitLen()))
	family := netlink.FAMILY_V4
	if client.Is6() {
		family = netlink.FAMILY_V6
	}
	if h.before, err = handle.RouteListFiltered(family, &netlink.Route{Dst: to}, netlink.RT_FILTER_DST); err != nil {
		t.Fatal(err)
	}
	h.routes = []netlink.Route{{LinkIndex: now.LinkIndex, Dst: to, Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}}
	replaceRoutes(t, handle, h.before, h.routes)
	return h
}

func replaceRoutes(t *testing.T, handle *netlink.Handle, before, now []netlink.Route) {
	t.Helper()
	for _, r := range before {
		if err := handle.RouteDel(&r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range now {
		if err := handle.RouteAdd(&r); err != nil {
			t.Fatal(err)
		}
	}
}

// areHeld reports nil when something waits.
func (h *heldAnswers) areHeld() error {
	var neighbours []netlink.Neigh
	err := h.server.Do(func() (err error) { neighbours, err = netlink.NeighList(h.router.LinkIndex, 0); return err })
	if err != nil {
		return err
	}
	for _, n := range neighbours {
		if n.IP.Equal(h.router.IP) && n.State == netlink.NUD_INCOMPLETE {
			return nil
		}
	}
	return errors.New("the server has not answered yet")
}

// release has sent what waits, and takes the route back.
func (h *heldAnswers) release(t *testing.T) {
	t.Helper()
	handle := h.server.Netlink(t)
	if err := errors.Join(handle.NeighSet(h.router), handle.NeighDel(h.router)); err != nil {
		t.Fatal(err)
	}
	replaceRoutes(t, handle, h.routes, h.before)
}
