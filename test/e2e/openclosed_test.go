package e2e

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// rulesForB are layer 7 rules for whoever calls b.
const rulesForB = "{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}"

// TestOpenConnectionsUsedPort has direct connections from ports that connections through the proxy had just before, whose sockets are in TIME-WAIT: when rules come again,
// they are closed.
func TestOpenConnectionsUsedPort(t *testing.T) {
	t.Parallel()
	n := newOccupiedNodes(t)
	rules := "{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}"
	port := uint16(42000)
	n.forEachFamily(func(t *testing.T, six bool) {
		n.ciliumPolicy(rules)
		used := map[openCase]uint16{}
		for _, c := range []openCase{
			{"a to b", n.a, n.b.at(six, webPort), true},
			{"a to b by a Service", n.a, n.at(web, six), true},
			{"a to the other node's pod", n.a, n.d.at(six, webPort), true},
		} {
			port++
			used[c] = port
			if err := (httpCase{name: c.name, from: c.from, to: c.to}).untilServerCloses(six, port); err != nil {
				t.Fatalf("%s: through the proxy: %v", c.name, err)
			}
		}
		n.ciliumPolicy(noRules)
		conns := map[openCase]net.Conn{}
		for c, port := range used {
			conn, err := dialFrom(c.from, netip.AddrPortFrom(c.from.addr(six), port), c.to)
			if err != nil {
				t.Fatalf("%s: directly: %v", c.name, err)
			}
			defer conn.Close()
			conns[c] = conn
		}
		n.ciliumPolicy(rules)
		for c, conn := range conns {
			if err := waitsFor(t, conn, 2*time.Second); err == nil {
				t.Errorf("IPv6 %v, %s: it is not closed", six, c.name)
			}
		}
	})
}

// TestOpenConnectionsServerStops has a server that accepts no more connections, and still has open ones, when layer 7 rules for it come.
func TestOpenConnectionsServerStops(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.a, n.b, n.d} {
		occupy(t, p)
	}
	n.forEachFamily(func(t *testing.T, six bool) {
		n.ciliumPolicy(noRules)
		conns := map[string]net.Conn{}
		listener := n.b.Listen(t, n.b.at(six, webPort))
		for _, from := range []party{n.a, n.d} {
			conn, err := from.Dial(n.b.at(six, webPort), 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			accepted, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			conns[from.name] = conn
		}
		listener.Close()
		n.ciliumPolicy(rulesForB)
		for name, conn := range conns {
			if err := waitsFor(t, conn, 2*time.Second); err == nil {
				t.Errorf("IPv6 %v: the connection of %s is not closed", six, name)
			}
		}
	})
}

// TestOpenConnectionsAuditEnds has layer 7 rules come into force by a restart of the agent without --policy-audit.
func TestOpenConnectionsAuditEnds(t *testing.T) {
	t.Parallel()
	n := newOccupiedNodes(t, "--policy-audit")
	n.ciliumPolicy(rulesForB)
	conn, err := n.a.Dial(n.b.at(false, webPort), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n.one.agent.Restart(t)
	if err := waitsFor(t, conn, 200*time.Millisecond); err != nil {
		t.Errorf("still in audit: %v", err)
	}
	n.one.agent.Restart(t, "--policy-audit=false")
	if err := waitsFor(t, conn, 2*time.Second); err == nil {
		t.Error("the connection that gets rules is not closed")
	}
}

// TestOpenConnectionsOtherNodesRules has a connection that goes through the proxy of its server's node alone stay open when its client gets rules for another server.
func TestOpenConnectionsOtherNodesRules(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		n := unrestrictedWebNodes(t, c, fabric, nil)
		for _, p := range []party{n.a, n.b, n.d} {
			occupy(t, p)
		}
		put := func(name, spec string) {
			t.Helper()
			for _, r := range c.nodes {
				if _, err := r.api.PutPolicies(t.Context(), []byte(strings.Replace(ciliumPolicy(spec), "name: ", "name: "+name, 1))); err != nil {
					t.Fatal(err)
				}
			}
		}
		put("first", "{endpointSelector: {matchLabels: {app: d}}, ingress: [{"+publicOnly+"}]}")
		testutil.Eventually(t, func() error { // a's node knows d's labels
			out := c.nodes[0].cli("policy", "explain", "--from", "demo/a", "--to", n.d.ipv4.String(), "--port", strconv.Itoa(int(webPort))).out
			if !strings.Contains(out, "firstweb") {
				return errors.New(out)
			}
			return nil
		})
		conns := map[party]net.Conn{}
		for _, to := range []party{n.b, n.d} {
			conn, err := n.a.Dial(to.at(false, webPort), 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns[to] = conn
		}
		put("second", "{endpointSelector: {matchLabels: {app: a}}, egress: [{toEndpoints: [{matchLabels: {app: d}}]}, {toEndpoints: [{matchLabels: {app: b}}], "+publicOnly+"}]}")
		if err := waitsFor(t, conns[n.b], 2*time.Second); err == nil {
			t.Error("the connection to b is not closed")
		}
		if err := waitsFor(t, conns[n.d], 200*time.Millisecond); err != nil {
			t.Errorf("the connection to d, which gets no rules here: %v", err)
		}
	})
}
