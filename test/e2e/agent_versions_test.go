package e2e

import (
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

//go:embed testdata/versions
var versionList string

// versions are the folders with the binaries of the earlier versions that are for a purpose: upgrade or downgrade.
func versions(t *testing.T, purpose string) (folders []string) {
	t.Helper()
	testutil.Root(t)
	for line := range strings.Lines(versionList) {
		words := strings.Fields(line)
		if words[0] == "#" || !slices.Contains(words, purpose) {
			continue
		}
		dir := filepath.Join(testutil.Build(t), "versions", words[0])
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("%v: make versions builds it; in a checkout without its history, git fetch origin %s comes first", err, words[0])
		}
		folders = append(folders, dir)
	}
	return folders
}

// previousVersion ends the agent and runs the agent of the newest version with "downgrade".
func (r *rig) previousVersion() {
	r.Helper()
	all := versions(r.T, "downgrade")
	r.agent.Kill(r)
	r.agent.Use(all[len(all)-1])
	r.agent.Start(r)
}

// thisVersion ends the agent and runs the agent of this tree.
func (r *rig) thisVersion() {
	r.Helper()
	r.agent.Kill(r)
	r.agent.Use(testutil.Build(r))
	r.agent.Start(r)
}

// pace is the pause of each client: an emulated machine has little time.
const pace = 20 * time.Millisecond

// drain has kept connections outlive their proxy until the end of the test.
const drain = "--drain-timeout=5m"

// pump sends numbers by a connection to a server that sends them back.
type pump struct {
	name      string
	conn      net.Conn
	stop      chan struct{}
	running   sync.WaitGroup
	sent, got int
	err       error // of the reader
}

func startPump(t *testing.T, name string, conn net.Conn, from io.Reader) *pump {
	t.Helper()
	p := &pump{name: name, conn: conn, stop: make(chan struct{})}
	const size = 32
	last := fmt.Sprintf("%*s", size, "end")
	p.running.Go(func() {
		for {
			if _, err := fmt.Fprintf(conn, "%*d", size, p.sent); err != nil {
				return // the reader tells why
			}
			p.sent++
			select {
			case <-p.stop:
				_, _ = fmt.Fprint(conn, last)
				return
			case <-time.After(pace):
			}
		}
	})
	p.running.Go(func() {
		got := make([]byte, size)
		for {
			_ = conn.SetReadDeadline(time.Now().Add(answerTime))
			if _, p.err = io.ReadFull(from, got); p.err != nil || string(got) == last {
				return
			}
			if want := fmt.Sprintf("%*d", size, p.got); string(got) != want {
				p.err = fmt.Errorf("%q came, want %q", got, want)
				return
			}
			p.got++
		}
	})
	return p
}

// end checks that each byte has come back, in order.
func (p *pump) end(t *testing.T) {
	t.Helper()
	close(p.stop)
	p.running.Wait()
	if p.err != nil || p.got != p.sent || p.got < 20 {
		t.Errorf("%s: %d of %d numbers came back, in order: %v", p.name, p.got, p.sent, p.err)
	}
	p.conn.Close()
}

// fromAToB allows pod a to use all ports of b, and no other pod.
const fromAToB = `{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}`

// changed is a node on which another version takes over, with pools, policies and traffic.
type changed struct {
	*serviceNodes
	more           []string      // flags of this version
	proxy          *proxyProcess // nil with a version that has none
	pool           pod           // has an address of the pool "blue"
	plain, proxied []*pump
	requests       *load
}

func newChanged(t *testing.T, bin string) *changed {
	t.Helper()
	fabric := testutil.NewFabric(t)
	node := fabric.NewNode(t)
	c := &changed{}
	if !hasProxy(bin) { // nor does it masquerade, and a node has no conntrack before
		c.more = []string{"--masquerade=none"}
	}
	one, two := rigOf(t, node, bin, c.flags(node, bin)...), rigOn(t, fabric.NewNode(t))
	fabric.RoutePods(t, one.node)
	fabric.RoutePods(t, two.node)
	one.putPool(v1.PoolSpec{Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24")}})
	c.serviceNodes = serviceNodesOn(t, nil, fabric, one, two)
	c.label()
	c.pool = one.named("shop", "e")
	for _, p := range []party{c.b, c.d} {
		serveWeb(t, p)
		serveNames(t, p)
	}
	c.policy(fromAToB)
	if hasProxy(bin) {
		c.proxy = startProxyOf(t, node, bin, drain)
		one.connected(c.proxy)
		c.proxyRules()
	}
	for _, six := range []bool{false, true} {
		for _, to := range []party{c.b, c.d} {
			server := to.Echo(t, to.addr(six))
			conn, err := c.a.Dial(server, reach)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			c.plain = append(c.plain, startPump(t, fmt.Sprintf("a to %s, %s", to.name, server), conn, conn))
			if c.proxy != nil {
				s := c.switchProtocol(to.at(six, webPort))
				c.proxied = append(c.proxied, startPump(t, fmt.Sprintf("a to %s through the proxy", s.RemoteAddr()), s, s.from))
			}
		}
	}
	c.requests = c.loadEvery(pace, false)
	return c
}

func hasProxy(bin string) bool {
	_, err := os.Stat(filepath.Join(bin, "porin-proxy"))
	return err == nil
}

func (c *changed) flags(node *testutil.Node, bin string) []string {
	flags := []string{
		"--ipam-mode=multi-pool", "--ipam-pod-cidr=", "--ipam-quarantine=0s", "--ipam-namespace-pool=shop=blue",
		fmt.Sprintf("--ipam-default-pool=%s,%s", node.PodIPv4, node.PodIPv6),
	}
	if hasProxy(bin) {
		flags = slices.Concat(flags, externalProxy(node), c.more)
	}
	return flags
}

// proxyRules restrict what a sends: to paths, and names.
func (c *changed) proxyRules() {
	c.Helper()
	others := `egress: [{toPorts: [{ports: [{port: "8080"}, {port: "32768", endPort: 65535}]}]}, `
	c.ciliumPolicy(strings.Replace(webAndNames, "egress: [", others, 1))
}

// to replaces agent, plugin and proxy by the programs of a folder, and checks that all of the node's state is still
// there.
func (c *changed) to(bin string) {
	c.Helper()
	r := c.one
	added := r.named("demo", fmt.Sprint("added", time.Now().UnixNano()))
	before, pools := r.endpoints(), r.pooled()
	r.agent.Stop(c)
	r.agent.Configure(c.flags(r.node, bin)...)
	r.agent.Use(bin)
	r.agent.Start(c)
	r.cni = r.node.NewCNI(c, testutil.CNIConfig{Bin: bin})
	c.proxy = startProxyOf(c.T, r.node, bin, drain)
	r.connected(c.proxy)
	after := r.endpoints()
	if len(after) != len(before) || fmt.Sprint(pools) != fmt.Sprint(r.pooled()) || pools[c.pool.ipv4] != "blue" {
		c.Errorf("endpoints %+v, with pools %v; before %+v, %v", after, r.pooled(), before, pools)
	}
	for i := range after {
		if after[i].ID != before[i].ID || after[i].Addresses != before[i].Addresses || after[i].State != before[i].State {
			c.Errorf("endpoint %+v, before %+v", after[i], before[i])
		}
	}
	r.cni.MustDel(c, added.Container)
	another := r.named("demo", "another")
	for _, six := range []bool{false, true} {
		if err := reachWithin(c.a, "tcp", c.b.at(six, backendPort), answerTime); err != nil {
			c.Errorf("a to b: %v", err)
		}
		if err := reachWithin(c.c, "tcp", c.b.at(six, backendPort), unreachable); err == nil {
			c.Error("c reaches b, and the policy denies it")
		}
		if err := testutil.Ping(another.Namespace, c.d.addr(six), reach); err != nil {
			c.Error(err)
		}
	}
	r.cni.MustDel(c, another.Container)
}

// rulesHold checks what the proxy decides.
func (c *changed) rulesHold() {
	c.Helper()
	err := c.resolves("www.example.com.", dns.RcodeSuccess)
	for range 2 { // resolvers ask again: on an emulated machine the new agent takes longer to come to the new proxy than a query waits
		if err != nil {
			err = c.resolves("www.example.com.", dns.RcodeSuccess)
		}
	}
	if err != nil {
		c.Error(err)
	}
	for _, six := range []bool{false, true} {
		for path, want := range map[string]int{"/public/x": http.StatusOK, "/private": http.StatusForbidden} {
			if status, body, err := get(webClient(c.T, c.a.Namespace, false), c.d.at(six, webPort), path); err != nil || status != want {
				c.Errorf("%s: %d %q, %v, want %d", path, status, body, err, want)
			}
		}
	}
}

func (c *changed) end() {
	c.Helper()
	for _, p := range append(c.plain, c.proxied...) {
		p.end(c.T)
	}
	c.requests.check(c.T, "requests")
	c.one.agrees()
}

// TestUpgradeFrom has this version take over the node of each earlier one: no byte and no request is lost.
func TestUpgradeFrom(t *testing.T) {
	for _, earlier := range versions(t, "upgrade") {
		t.Run(filepath.Base(earlier)[:7], func(t *testing.T) {
			c := newChanged(t, earlier)
			c.to(testutil.Build(t))
			if !hasProxy(earlier) {
				c.requests.end() // connections that are open when rules come are reset
				c.proxyRules()
			}
			c.rulesHold()
			c.end()
		})
	}
}

// TestDowngradeTo has each earlier version take over the node of this one, and this one take it back.
func TestDowngradeTo(t *testing.T) {
	for _, earlier := range versions(t, "downgrade") {
		t.Run(filepath.Base(earlier)[:7], func(t *testing.T) {
			c := newChanged(t, testutil.Build(t))
			for _, bin := range []string{earlier, testutil.Build(t)} {
				c.to(bin)
				c.rulesHold()
			}
			c.end()
		})
	}
}
