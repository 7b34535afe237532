package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

const (
	webPort = 8080 // of residents that serve HTTP
	// What layer 7 rules let pass and what not.
	allowedPath, deniedPath = "/yes", "/no"
	// requestTimeout is how long a request may take: the proxy within an agent goes with it, and comes with the next one.
	requestTimeout = 3 * time.Second
)

// layer7Policies let residents and guests ask [servers] for one path. A client on the same node is a pod to it, and a
// client on another node perhaps an address. Whatever else a rule allows changes nothing for them: it is another set of
// rules.
func (w *world) layer7Policies(other string) []byte {
	x := w.hosts[0].live[2]
	ports := fmt.Sprintf("toPorts: [{ports: [{port: \"%d\", protocol: TCP}], rules: {http: [{method: GET, path: %q}, {method: GET, path: %q}]}}]", webPort, allowedPath, other)
	const servers = "matchExpressions: [{key: name, operator: In, values: [b, c, d]}]"
	return []byte(ciliumPolicy(residents, "layer7", fmt.Sprintf(
		"{endpointSelector: {%s}, ingress: [{fromEndpoints: [{matchLabels: {name: x}}, {matchLabels: {io.kubernetes.pod.namespace: %s}}], %s}, {fromCIDR: [%s/32, %s/128], %s}]}",
		servers, guests, ports, x.IPv4, x.IPv6, ports,
	)) + ciliumPolicy(guests, "layer7", fmt.Sprintf(
		"{endpointSelector: {}, egress: [{toEndpoints: [{matchLabels: {io.kubernetes.pod.namespace: %s}, %s}], %s}]}", residents, servers, ports,
	)))
}

func ciliumPolicy(namespace, name, spec string) string {
	return strings.Replace(networkPolicy(namespace, name, spec), "networking.k8s.io/v1\nkind: NetworkPolicy", "cilium.io/v2\nkind: CiliumNetworkPolicy", 1)
}

// webServer is a resident's server in one family. It counts what layer 7 rules deny and it got all the same.
type webServer struct {
	host    *host
	name    string
	addr    netip.AddrPort
	allowed atomic.Int64
	denied  atomic.Int64
}

func (s *webServer) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.URL.Path == allowedPath {
		s.allowed.Add(1)
	} else {
		s.denied.Add(1)
	}
}

// serveWeb starts an HTTP server in a resident of each node: the second resident of the first node, and the only one of
// the others. Policies, once there are any, restrict it.
func (w *world) serveWeb(t *testing.T) {
	t.Helper()
	for i, h := range w.hosts {
		p := h.live[0]
		if i == 0 {
			p = h.live[1]
		}
		for family, addr := range []netip.Addr{p.IPv4, p.IPv6} {
			s := &webServer{host: h, name: fmt.Sprintf("%s on %s", addr, h.node.Name), addr: netip.AddrPortFrom(addr, webPort)}
			listener, server := p.Listen(t, s.addr), &http.Server{Handler: s}
			var running sync.WaitGroup
			running.Go(func() { _ = server.Serve(listener) })
			t.Cleanup(func() { _ = server.Close(); running.Wait() })
			h.web[family] = s
		}
	}
}

// request is a client of one server.
type request struct {
	name   string
	client *http.Client
	server *host
	url    string

	answered, refused, withheld, failed atomic.Int64
}

func newRequest(from *testutil.Namespace, name string, to *webServer) *request {
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	transport.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) {
		return from.Dial(netip.MustParseAddrPort(addr), requestTimeout)
	}
	return &request{name: name, client: &http.Client{Transport: transport, Timeout: requestTimeout}, server: to.host, url: "http://" + to.addr.String()}
}

// withheld reports whether the agent has denied everything that needs layer 7 rules, as porin-proxy did not answer when
// some changed (docs/policy-decisions.md). That ends soon after porin-proxy has come back.
func (h *host) withheld(began time.Time) bool {
	const soon = 5 * time.Second
	for line := range strings.Lines(h.agent.Log()) {
		if !strings.Contains(line, "what needs layer 7 rules is denied until the proxy has them") {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(began.Add(-soon)) {
			return true
		}
	}
	return false
}

// errWrong is an answer that no state of agents, proxies and policies explains.
var errWrong = errors.New("wrong answer")

// ask returns an error of another kind when there is no proxy for a moment.
func (r *request) ask(path string) error {
	began := time.Now()
	answer, err := r.client.Get(r.url + path)
	if err != nil {
		r.failed.Add(1)
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		r.failed.Add(1)
		return err
	}
	switch {
	case path == allowedPath && answer.StatusCode == http.StatusOK:
		r.answered.Add(1)
	case path == deniedPath && answer.StatusCode == http.StatusForbidden:
		r.refused.Add(1)
	case answer.StatusCode == http.StatusServiceUnavailable: // the server cannot be reached for a moment
		r.failed.Add(1)
		return errors.New(answer.Status)
	case path == allowedPath && answer.StatusCode == http.StatusForbidden && r.server.withheld(began):
		r.withheld.Add(1)
		return errors.New(answer.Status)
	default:
		return fmt.Errorf("%w: GET %s of %s, %s: %s, began %s", errWrong, path, r.url, r.name, answer.Status, began.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// openRequests makes clients of servers that are reached through the proxy within an agent, and through porin-proxy, in
// each family.
func (w *world) openRequests() (all []*request) {
	first, second := w.hosts[0], w.hosts[1]
	for family := range first.web {
		all = append(all,
			newRequest(first.live[2].Namespace, "pod to pod", first.web[family]),
			newRequest(first.live[2].Namespace, "pod to a pod of another node", second.web[family]))
	}
	return all
}

// run asks for one path and the other, on a connection that is kept or on a new one, until it is told to stop.
func (r *request) run(w *wrongs, random *rand.Rand, stop <-chan struct{}) {
	for sleep(pace, stop) {
		if random.IntN(4) == 0 {
			r.client.CloseIdleConnections()
		}
		if err := r.ask([]string{allowedPath, deniedPath}[random.IntN(2)]); errors.Is(err, errWrong) {
			w.add("layer 7 rules", err.Error())
		}
	}
	r.client.CloseIdleConnections()
}

// works waits until the rules are in force: allowed requests are answered, and no others.
func (r *request) works(w *wrongs) {
	var wrong error
	err := testutil.Poll(patience, func() error {
		err := errors.Join(r.ask(allowedPath), r.ask(deniedPath))
		if errors.Is(err, errWrong) { // that may not be, not even for a while
			wrong, err = err, nil
		}
		return err
	})
	err = errors.Join(err, wrong)
	r.client.CloseIdleConnections()
	if err != nil {
		w.add("layer 7 rules after all", fmt.Sprintf("%s, %s: %v", r.name, r.url, err))
	}
}

// tryWebAsGuest has a guest ask for what its rules allow, or deny.
func (h *host) tryWebAsGuest(guest nodecheck.Pod, random *rand.Rand) {
	r := newRequest(guest.Namespace, "guest", h.web[random.IntN(2)])
	defer r.client.CloseIdleConnections()
	switch err := r.ask([]string{allowedPath, deniedPath}[random.IntN(2)]); {
	case errors.Is(err, errWrong):
		h.wrongs.add("layer 7 rules", err.Error())
	case err == nil:
		h.counts.guestRequests.Add(1)
	default:
		h.counts.guestRequestsFailed.Add(1)
	}
}

// changeLayer7 sets other sets of rules that decide the same for all requests, or some that none meets.
func (h *host) changeLayer7(random *rand.Rand) []byte {
	other := fmt.Sprintf("/other-%d", random.IntN(1000))
	if random.IntN(2) == 0 {
		return h.layer7Policies(other)
	}
	return []byte(ciliumPolicy(guests, "changing-layer7", fmt.Sprintf(
		"{endpointSelector: {}, egress: [{toCIDR: [203.0.113.%d/32], toPorts: [{ports: [{port: \"%d\", protocol: TCP}], rules: {http: [{path: %q}]}}]}]}",
		random.IntN(256), 1+random.IntN(65535), other,
	)))
}

// reportRequests fails the test when a request arrived that the rules deny, or there was none of a kind.
func (w *world) reportRequests(t *testing.T, all []*request) {
	t.Helper()
	for _, r := range all {
		fmt.Printf("chaos: requests, %s, %s: %d answered, %d refused by rules, %d as the proxy did not have the rules, %d failed\n", r.name, r.url, r.answered.Load(), r.refused.Load(), r.withheld.Load(), r.failed.Load())
		if r.answered.Load() == 0 || r.refused.Load() == 0 {
			t.Errorf("%s, %s: %d requests were answered, and %d refused", r.name, r.url, r.answered.Load(), r.refused.Load())
		}
	}
	for _, h := range w.hosts {
		for _, s := range h.web {
			if n := s.denied.Load(); n > 0 || s.allowed.Load() == 0 {
				t.Errorf("server %s: %d requests, and %d that the rules deny", s.name, s.allowed.Load(), n)
			}
		}
	}
}

// endRedirects deletes the layer 7 rules. Soon nothing of the way into the proxy is on any node.
func (w *world) endRedirects(t *testing.T) {
	t.Helper()
	var group sync.WaitGroup
	for _, h := range w.hosts {
		group.Go(func() {
			if err := h.deleteLayer7(t.Context()); err != nil {
				h.wrongs.add("layer 7 rules are not deleted", fmt.Sprintf("%s: %v", h.node.Name, err))
				return
			}
			if err := testutil.Poll(testutil.Patience, h.noRedirects); err != nil {
				h.wrongs.add("the way into the proxy is left", fmt.Sprintf("%s: %v", h.node.Name, err))
			}
		})
	}
	group.Wait()
}

func (h *host) deleteLayer7(ctx context.Context) (err error) {
	api := client.New(h.node.Socket)
	defer api.Close()
	for _, p := range [][2]string{{residents, "layer7"}, {guests, "layer7"}, {guests, "changing-layer7"}} {
		failure := api.DeletePolicy(ctx, "CiliumNetworkPolicy", p[0], p[1])
		if problem, ok := errors.AsType[*v1.Problem](failure); !ok || problem.Code != v1.CodeNotFound {
			err = errors.Join(err, failure)
		}
	}
	return err
}

// noRedirects returns what the node has of the way into the proxy: devices, routes and rules by their table, nftables
// rules. Of the map of redirected connections, entries of some that were never accepted stay, by design.
func (h *host) noRedirects() error {
	var status v1.Status
	if err := h.agent.Get("/v1/status", &status); err != nil {
		return err
	}
	if p := status.Proxy; p.InUse || p.RuleSets > 0 || p.Connections > 0 || p.Error != "" {
		return fmt.Errorf("status %+v", p)
	}
	var text []byte
	err := h.node.Do(func() (err error) {
		text, err = shell("ip link; ip rule; ip -6 rule; nft list ruleset")
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"porin-l7", "10247", "porin-proxy"} {
		if strings.Contains(string(text), name) {
			return fmt.Errorf("%s is in\n%s", name, text)
		}
	}
	return nil
}
