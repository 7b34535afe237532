package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// openCase is a connection that gets layer 7 rules while it is open.
type openCase struct {
	name string
	from party
	to   netip.AddrPort
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

// TestOpenConnections sends a request on connections that were open before layer 7 rules came: each is reset, and no
// server gets a byte of it. A connection that only waits is left alone.
func TestOpenConnections(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	var undecided atomic.Int64
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		for _, six := range []bool{false, true} {
			serve(t, p.Listen(t, p.at(six, webPort)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/undecided" {
					undecided.Add(1)
				}
				fmt.Fprint(w, p.name)
			}))
		}
	}
	n.forEachFamily(func(t *testing.T, six bool) {
		for _, of := range []struct {
			spec  string
			cases []httpCase
		}{
			{"{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}", n.httpEgress(six)},
			{"{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}", n.httpIngress(six)},
		} {
			n.ciliumPolicy(noRules)
			var open, waiting []*openRequest
			for _, c := range of.cases {
				for _, list := range []*[]*openRequest{&open, &waiting} {
					conn, err := c.from.Dial(c.to, 5*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					o := &openRequest{httpCase: c, conn: conn}
					if status, _, err := o.ask("/"); err != nil || status != http.StatusOK {
						t.Fatalf("%s: before the rules: %d, %v", c.name, status, err)
					}
					*list = append(*list, o)
				}
			}
			n.ciliumPolicy(of.spec)
			for _, o := range open {
				if status, _, err := o.ask("/undecided"); err == nil || isTimeout(err) {
					t.Errorf("IPv6 %v, %s: %d, %v; want a reset", six, o.name, status, err)
				}
			}
			for _, o := range waiting {
				if err := waitsFor(t, o.conn, 20*time.Millisecond); err != nil {
					t.Errorf("IPv6 %v, %s: a connection that waits: %v", six, o.name, err)
				}
			}
		}
	})
	if undecided.Load() != 0 {
		t.Errorf("servers got %d requests that the proxy has not decided about", undecided.Load())
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
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

// TestOpenConnectionsHalfOpen: the server's first answer comes after the rules. The client gets through with its next
// try, or is reset. It does not wait.
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
