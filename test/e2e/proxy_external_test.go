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
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// proxyProcess is a porin-proxy on a node.
type proxyProcess struct {
	*testing.T
	node *testutil.Node
	cmd  *exec.Cmd
	done chan struct{}
	log  string
}

func proxySocket(n *testutil.Node) string { return filepath.Join(n.Dir, "proxy.sock") }

// externalProxy are the flags of an agent that has its proxy in another process.
func externalProxy(n *testutil.Node) []string {
	return []string{"--proxy-mode=external", "--proxy-socket=" + proxySocket(n)}
}

// startProxy does not wait.
func startProxy(t *testing.T, n *testutil.Node, flags ...string) *proxyProcess {
	t.Helper()
	return startProxyOf(t, n, testutil.Build(t), flags...)
}

// startProxyOf is startProxy with the binary of a folder.
func startProxyOf(t *testing.T, n *testutil.Node, bin string, flags ...string) *proxyProcess {
	t.Helper()
	return startProxyIn(t, n, bin, func(*exec.Cmd) {}, flags...)
}

func startProxyIn(t *testing.T, n *testutil.Node, bin string, wrap testutil.Wrapper, flags ...string) *proxyProcess {
	t.Helper()
	p := &proxyProcess{T: t, node: n, done: make(chan struct{}), log: filepath.Join(n.Dir, fmt.Sprintf("proxy%d.log", time.Now().UnixNano()))}
	file, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.cmd = exec.Command(filepath.Join(bin, "porin-proxy"),
		append([]string{"--proxy-socket=" + proxySocket(n), "--state-dir=" + n.StateDir, "--bpf-root=" + n.BPFRoot}, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	wrap(p.cmd)
	if err := n.Do(p.cmd.Start); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if text, _ := os.ReadFile(p.log); t.Failed() {
			t.Logf("log of porin-proxy, pid %d:\n%s", p.cmd.Process.Pid, text)
		}
	})
	return p
}

func (p *proxyProcess) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *proxyProcess) kill() {
	p.signal(unix.SIGKILL)
	<-p.done
}

// ended waits for the process, which has to end with exit code 0.
func (p *proxyProcess) ended() {
	p.Helper()
	select {
	case <-p.done:
	case <-time.After(testutil.Patience):
		p.Fatalf("porin-proxy %d does not end", p.cmd.Process.Pid)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.Errorf("porin-proxy %d has ended with %v", p.cmd.Process.Pid, p.cmd.ProcessState)
	}
}

// connected waits until the agent has the proxy.
func (r *rig) connected(p *proxyProcess) {
	r.Helper()
	testutil.Eventually(r, func() error {
		if s := r.status().Proxy; !s.External || !s.Connected || s.PID != p.cmd.Process.Pid {
			return fmt.Errorf("status %+v, want the proxy with pid %d", s, p.cmd.Process.Pid)
		}
		return nil
	})
}

// newExternal are nodes. The first has its proxy in a process of its own.
func newExternal(t *testing.T) (*serviceNodes, *proxyProcess) {
	t.Helper()
	testutil.Root(t)
	fabric := testutil.NewFabric(t)
	node := fabric.NewNode(t)
	one, two := rigOn(t, node, externalProxy(node)...), rigOn(t, fabric.NewNode(t))
	fabric.RoutePods(t, one.node)
	fabric.RoutePods(t, two.node)
	n := serviceNodesOn(t, nftablesMode{}, fabric, one, two)
	n.label()
	for _, p := range []party{n.a, n.b, n.d, n.outside} {
		serveWeb(t, p)
	}
	p := startProxy(t, one.node)
	one.connected(p)
	return n, p
}

const webAndNames = "{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}, {" + exampleNames + "}, " +
	"{toFQDNs: [{matchPattern: \"*.example.com\"}], toPorts: [{ports: [{port: \"443\"}]}]}]}"

const publicBothWays = "{endpointSelector: {}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}"

// TestExternalProxy has HTTP rules applied by porin-proxy.
func TestExternalProxy(t *testing.T) {
	n, p := newExternal(t)
	n.forEachFamily(func(t *testing.T, six bool) {
		n.ciliumPolicy(publicBothWays)
		checkHTTP(t, six, n.httpEgress(six))
		checkHTTP(t, six, n.httpIngress(six))
	})
	if out := n.one.cli("status").out; !strings.Contains(out, fmt.Sprintf("pid %d", p.cmd.Process.Pid)) {
		t.Errorf("status does not tell of porin-proxy:\n%s", out)
	}
	n.one.agrees()
	n.checkExternalEnds(p)
}

// checkExternalEnds removes the rules: nothing of the proxy stays in the kernel.
func (n *serviceNodes) checkExternalEnds(p *proxyProcess) {
	n.Helper()
	if err := n.one.api.DeletePolicy(n.Context(), "CiliumNetworkPolicy", "demo", "web"); err != nil {
		n.Fatal(err)
	}
	testutil.Eventually(n, func() error {
		if s := n.one.status().Proxy; s.InUse || s.RuleSets != 0 {
			return fmt.Errorf("status %+v, want that the proxy is not in use", s)
		}
		return nil
	})
	p.signal(unix.SIGTERM)
	p.ended()
}

// load requests from several clients until it is stopped. Each request has a connection of its own, or uses a kept one.
type load struct {
	wait            sync.WaitGroup
	stopped         chan struct{}
	requests, fails atomic.Int64
	mu              sync.Mutex
	errs            []string
}

func (n *serviceNodes) load(keep bool) *load { n.Helper(); return n.loadEvery(time.Millisecond, keep) }

func (n *serviceNodes) loadEvery(pause time.Duration, keep bool) *load {
	n.Helper()
	l := &load{stopped: make(chan struct{})}
	for _, six := range []bool{false, true} {
		servers := []netip.AddrPort{n.b.at(six, webPort), n.d.at(six, webPort)}
		if n.mode != nil {
			servers = append(servers, n.at(web, six))
		}
		for _, server := range servers {
			client := webClient(n.T, n.a.Namespace, keep)
			l.wait.Go(func() {
				for {
					select {
					case <-l.stopped:
						return
					case <-time.After(pause):
					}
					status, body, err := get(client, server, "/public/x")
					l.requests.Add(1)
					if err != nil || status != http.StatusOK {
						l.fails.Add(1)
						l.mu.Lock()
						l.errs = append(l.errs, fmt.Sprintf("%s %s: %d %q, %v", time.Now().Format("15:04:05.000"), server, status, body, err))
						l.mu.Unlock()
					}
				}
			})
		}
	}
	n.Cleanup(func() { l.end() })
	return l
}

// queries asks for a name again and again, by UDP and TCP, once each time.
func (n *serviceNodes) queries() *load {
	n.Helper()
	return n.queriesFor(func() string { return "www.example.com." })
}

func (n *serviceNodes) queriesFor(name func() string) *load {
	n.Helper()
	l := &load{stopped: make(chan struct{})}
	for _, six := range []bool{false, true} {
		for _, server := range []netip.AddrPort{n.b.at(six, dnsPort), n.d.at(six, dnsPort)} {
			for _, network := range []string{"udp", "tcp"} {
				l.wait.Go(func() {
					for {
						select {
						case <-l.stopped:
							return
						case <-time.After(5 * time.Millisecond):
						}
						answer, err := n.a.resolve(network, server, name())
						l.requests.Add(1)
						if err != nil || answer.Rcode != dns.RcodeSuccess {
							l.fails.Add(1)
							l.mu.Lock()
							l.errs = append(l.errs, fmt.Sprintf("%s %s %s: %v, %v", time.Now().Format("15:04:05.000"), network, server, answer, err))
							l.mu.Unlock()
						}
					}
				})
			}
		}
	}
	n.Cleanup(func() { l.end() })
	return l
}

func (l *load) end() {
	select {
	case <-l.stopped:
	default:
		close(l.stopped)
	}
	l.wait.Wait()
}

// check expects no failure.
func (l *load) check(t *testing.T, when string) {
	t.Helper()
	l.end()
	t.Logf("%s: %d requests, %d failed", when, l.requests.Load(), l.fails.Load())
	if l.fails.Load() > 0 || l.requests.Load() == 0 {
		t.Errorf("%s: %d of %d requests failed, such as %s", when, l.fails.Load(), l.requests.Load(), strings.Join(l.errs[:min(5, len(l.errs))], "; "))
	}
}

// TestExternalProxyReplaced replaces the proxy ten times under load: no new connection fails, and none that has a
// request.
func TestExternalProxyReplaced(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	serveNames(t, n.b)
	serveNames(t, n.d)
	l, queries := n.load(false), n.queries()
	for range 10 {
		request := n.stream(n.d.at(false, webPort))
		next := startProxy(t, n.one.node)
		n.one.connected(next)
		request.check(t, "a request that was begun before and ends after")
		p.ended()
		p = next
	}
	l.check(t, "replaced ten times")
	queries.check(t, "queries, replaced ten times")
}

// repeats is how often a test ends the agent under load.
func repeats() int {
	if testutil.Full() {
		return 10
	}
	return 4
}

// TestExternalProxyAgentAway kills and stops the agent again and again under load: connections through the proxy
// continue, and rules apply.
func TestExternalProxyAgentAway(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	serveNames(t, n.b)
	serveNames(t, n.d)
	l, kept, queries := n.load(true), n.load(false), n.queries()
	for i := range repeats() {
		if i%2 == 0 {
			n.one.agent.Kill(t)
		} else {
			n.one.agent.Stop(t)
		}
		for _, six := range []bool{false, true} {
			checkHTTP(t, six, n.httpEgress(six)[:4])
		}
		n.one.agent.Start(t)
		n.one.connected(p)
	}
	l.check(t, "kept connections, agent ended again and again")
	kept.check(t, "new connections, agent ended again and again")
	queries.check(t, "queries, agent ended again and again")
	n.one.agrees()
}

// TestExternalProxyUpgraded ends the agent, by a kill and by a stop, and replaces the proxy, again and again under
// load, with names that are known and names that are new: no request and no query fails, for a resolver that waits for
// five seconds.
func TestExternalProxyUpgraded(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	serveNames(t, n.b)
	serveNames(t, n.d)
	var asked atomic.Int64
	l, queries := n.load(false), n.queries()
	others := n.queriesFor(func() string { return fmt.Sprintf("n%d.example.com.", asked.Add(1)) })
	for i := range repeats() {
		if i%2 == 0 {
			n.one.agent.Kill(t)
		} else {
			n.one.agent.Stop(t)
		}
		n.one.agent.Start(t)
		n.one.connected(p)
		next := startProxy(t, n.one.node)
		n.one.connected(next)
		p.ended()
		p = next
	}
	l.check(t, "new connections, upgraded again and again")
	queries.check(t, "queries, upgraded again and again")
	others.check(t, "queries for new names, upgraded again and again")
	n.one.agrees()
}

// TestExternalProxyReplacedAgentAway replaces the proxy ten times while no agent is there: each knows what an agent has
// acknowledged to the first one.
func TestExternalProxyReplacedAgentAway(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	serveNames(t, n.b)
	serveNames(t, n.d)
	if err := n.resolves("www.example.com.", dns.RcodeSuccess); err != nil {
		t.Fatal(err)
	}
	n.one.agent.Kill(t)
	queries := n.queries()
	for range 10 {
		next := startProxy(t, n.one.node)
		p.ended()
		p = next
	}
	queries.check(t, "queries, replaced ten times without an agent")
	n.one.agent.Start(t)
	n.one.connected(p)
	n.one.agrees()
}

// resolves asks a server for a name, by UDP and TCP.
func (n *serviceNodes) resolves(name string, want int) error {
	for _, network := range []string{"udp", "tcp"} {
		answer, err := n.a.resolve(network, n.b.at(false, dnsPort), name)
		if err != nil || answer.Rcode != want {
			return fmt.Errorf("%s by %s: %v, %w; want code %d", name, network, answer, err, want)
		}
	}
	return nil
}

// namesOfTwo lets a pod ask for names in two domains, and reach the addresses of those in one of them.
const namesOfTwo = `{endpointSelector: {matchLabels: {app: a}}, egress: [` +
	`{toPorts: [{ports: [{port: "5053", protocol: ANY}], ` +
	`rules: {dns: [{matchPattern: "*.example.com"}, {matchPattern: "*.example.net"}]}}]}, ` +
	`{toFQDNs: [{matchPattern: "*.example.com"}], toPorts: [{ports: [{port: "443"}]}]}]}`

// TestExternalProxyNamesAgentAway asks for names while no agent is there. An answer that changes no policy passes at
// once; any other one waits for the next agent, and a resolver gets SERVFAIL before it gives up.
func TestExternalProxyNamesAgentAway(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(namesOfTwo)
	serveNames(t, n.b)
	ask := func(when, name string, want int, least, most time.Duration) {
		t.Helper()
		began := time.Now()
		err := n.resolves(name, want)
		if took := time.Since(began) / 2; err != nil || took < least || took > most {
			t.Errorf("%s: %v after %v, want that after %v to %v", when, err, took, least, most)
		}
	}
	const atOnce, timeout = time.Second, 4500 * time.Millisecond
	ask("with an agent", "www.example.com.", dns.RcodeSuccess, 0, atOnce)
	n.one.agent.Kill(t)
	ask("a known name", "www.example.com.", dns.RcodeSuccess, 0, atOnce)
	ask("a name that no rule selects", "www.example.net.", dns.RcodeSuccess, 0, atOnce)
	ask("a name with a pod's address", "pod.example.com.", dns.RcodeSuccess, 0, atOnce)
	ask("a name without addresses", "none.example.com.", dns.RcodeSuccess, 0, atOnce)
	ask("a name that is not allowed", "www.example.org.", dns.RcodeNameError, 0, atOnce)
	ask("a new name", "new.example.com.", dns.RcodeServerFailure, timeout, 5*time.Second)

	waiting := make(chan error, 1)
	go func() { waiting <- n.resolves("late.example.com.", dns.RcodeSuccess) }()
	n.one.agent.Start(t)
	if err := <-waiting; err != nil {
		t.Errorf("a query that has waited for the agent: %v", err)
	}
	out := n.one.cli("policy", "explain", "--from", "demo/a", "--to", "198.51.100.9", "--port", "443").out
	if !strings.Contains(out, "late.example.com") {
		t.Errorf("the answer has come before the agent knows the address:\n%s", out)
	}
	n.one.connected(p)

	n.one.agent.Kill(t)
	p.kill()
	startProxy(t, n.one.node) // it has the rules of the file, and knows no addresses
	testutil.Eventually(t, func() error { return n.resolves("www.example.net.", dns.RcodeSuccess) })
	ask("a name that the previous proxy knew", "www.example.com.", dns.RcodeServerFailure, timeout, 5*time.Second)
}

// TestExternalProxyAgentHangs: known names are answered for without an agent that hangs, and names that it would have
// to write wait for it.
func TestExternalProxyAgentHangs(t *testing.T) {
	n, _ := newExternal(t)
	n.ciliumPolicy(namesOfTwo)
	serveNames(t, n.b)
	ask := func(name string, want int) {
		t.Helper()
		if err := n.resolves(name, want); err != nil {
			t.Error(err)
		}
	}
	ask("www.example.com.", dns.RcodeSuccess)
	n.one.signal(unix.SIGSTOP)
	ask("www.example.com.", dns.RcodeSuccess)
	ask("www.example.net.", dns.RcodeSuccess)
	ask("www.example.org.", dns.RcodeNameError)
	waiting := make(chan error, 1)
	go func() { waiting <- n.resolves("other.example.com.", dns.RcodeSuccess) }()
	select {
	case err := <-waiting:
		t.Errorf("a name that the agent would have to write does not wait: %v", err)
	case <-time.After(time.Second):
	}
	n.one.signal(unix.SIGCONT)
	if err := <-waiting; err != nil {
		t.Errorf("when the agent goes on: %v", err)
	}
}

// TestExternalProxyOtherMaps starts the agent with maps of another size, which it makes again: the proxy and its
// program read the new ones.
func TestExternalProxyOtherMaps(t *testing.T) {
	n, p := newExternal(t)
	serveWeb(t, n.node1)
	policy := func(path string) {
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{toPorts: [{ports: [{port: \"8081\", protocol: TCP}], rules: {http: [{path: \"" + path + "\"}]}}]}]}")
	}
	policy("/one")
	n.one.agent.Restart(t, append(externalProxy(n.one.node), "--max-endpoints=2000", "--datapath-max-addresses=4096")...)
	n.one.connected(p)
	policy("/two")
	for _, six := range []bool{false, true} {
		for _, server := range []netip.AddrPort{n.b.at(six, webPort), n.d.at(six, webPort), n.node1.at(six, webPort)} {
			client := webClient(t, n.a.Namespace, false)
			for path, want := range map[string]int{"/one": http.StatusForbidden, "/two": http.StatusOK} {
				if status, body, err := get(client, server, path); err != nil || status != want {
					t.Errorf("%s of %s: %d %q, %v, want %d", path, server, status, body, err, want)
				}
			}
		}
	}
}

// TestExternalProxyKilled kills the proxy: connections that are opened meanwhile wait for the next one, of the agent's
// sockets. With the agent away, too, the next proxy goes on with the rules that were in force last.
func TestExternalProxyKilled(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(publicBothWays)
	for i := range 3 {
		p.kill()
		conns := map[netip.AddrPort]net.Conn{}
		for _, six := range []bool{false, true} {
			for _, server := range []netip.AddrPort{n.b.at(six, webPort), n.d.at(six, webPort), n.at(web, six)} {
				conn, err := n.a.Dial(server, time.Second) // accepted by the sockets that the agent holds
				if err != nil {
					t.Fatalf("round %d: connect to %s while the proxy is away: %v", i, server, err)
				}
				defer conn.Close()
				conns[server] = conn
			}
		}
		p = startProxy(t, n.one.node)
		for server, conn := range conns {
			if err := requestOn(conn, "/public/x"); err != nil {
				t.Errorf("round %d: request to %s on a connection that has waited: %v", i, server, err)
			}
		}
		n.one.connected(p)
	}
	n.one.agent.Kill(t)
	p.kill()
	p = startProxy(t, n.one.node)
	for _, six := range []bool{false, true} {
		checkHTTP(t, six, n.httpEgress(six)[:4])
	}
	n.one.agent.Start(t)
	n.one.connected(p)
	for _, six := range []bool{false, true} {
		checkHTTP(t, six, n.httpEgress(six)[:4])
	}
}

// requestOn expects 200.
func requestOn(conn net.Conn, path string) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d, %w", response.StatusCode, err)
	}
	return nil
}

// TestExternalProxyStartedTwice starts two proxies one after the other while no agent is there: the second one goes on
// with the rules that were in force last.
func TestExternalProxyStartedTwice(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(publicBothWays)
	n.one.agent.Kill(t)
	p.kill()
	first := startProxy(t, n.one.node)
	testutil.Eventually(t, func() error { // it serves, and waits for an agent
		conn, err := net.Dial("unix", proxySocket(n.one.node))
		if err == nil {
			conn.Close()
		}
		return err
	})
	startProxy(t, n.one.node)
	first.ended()
	for _, six := range []bool{false, true} {
		checkHTTP(t, six, n.httpEgress(six)[:4])
	}
	text, err := os.ReadFile(filepath.Join(n.one.node.StateDir, "proxy-rules.json"))
	if err != nil || !strings.Contains(string(text), "/public/") {
		t.Errorf("the file of rules has %s, %v", text, err)
	}
}

// TestExternalProxyStays: a proxy in a container that is replaced must not end, as the kubelet would start it again,
// and it would take over again.
func TestExternalProxyStays(t *testing.T) {
	n, p := newExternal(t)
	first := startProxy(t, n.one.node, "--stay-when-replaced")
	p.ended()
	n.one.connected(first)
	n.one.connected(startProxy(t, n.one.node, "--stay-when-replaced"))
	select {
	case <-first.done:
		t.Error("it has ended")
	case <-time.After(unreachable):
	}
	first.signal(unix.SIGTERM)
	first.ended()
}

// TestExternalProxyServesAgain: an upgrade is taken back, so the next proxy ends, and the previous one must serve.
func TestExternalProxyServesAgain(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(publicBothWays)
	first := startProxy(t, n.one.node, "--stay-when-replaced")
	p.ended()
	n.one.connected(first)
	for _, end := range []func(*proxyProcess){
		func(next *proxyProcess) { next.signal(unix.SIGTERM); next.ended() },
		(*proxyProcess).kill,
	} {
		next := startProxy(t, n.one.node, "--stay-when-replaced")
		n.one.connected(next)
		end(next)
		n.one.connected(first)
		for _, six := range []bool{false, true} {
			checkHTTP(t, six, n.httpEgress(six)[:4])
		}
	}
	first.signal(unix.SIGTERM)
	first.ended()
}

// TestExternalProxyReplacedPolicyChanges: a request that the previous proxy still serves continues when another policy
// allows it, too.
func TestExternalProxyReplacedPolicyChanges(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	request := n.stream(n.d.at(false, webPort))
	next := startProxy(t, n.one.node)
	n.one.connected(next)
	n.ciliumPolicy(strings.Replace(webAndNames, "/public/.*", "/(public|other)/.*", 1))
	request.check(t, "a request that was begun before, and that both policies allow")
	p.ended()
}

// TestExternalProxyHangs stops the proxy's process: pods come and go without it, and a policy that needs it is refused
// within its caller's time.
func TestExternalProxyHangs(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(publicBothWays)
	keptRequest(t, n.a.Namespace, n.b.at(false, webPort), "/public/x")
	p.signal(unix.SIGSTOP)
	began := time.Now()
	other := n.one.named("demo", "other")
	if err := n.one.cni.Del(other.Container); err != nil {
		t.Fatal(err)
	}
	if err := n.one.cni.Del(n.podB.Container); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("an ADD and two DELs took %v while the proxy hangs", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := n.one.api.PutPolicies(ctx, []byte(ciliumPolicy(`{endpointSelector: {}, ingress: [{toPorts: [{ports: [{port: "8081"}], rules: {http: [{path: "/other"}]}}]}]}`)))
	if err == nil {
		t.Error("a policy was applied whose rules the proxy does not have")
	}
	p.signal(unix.SIGCONT)
	testutil.Eventually(t, func() error {
		status, _, err := get(webClient(t, n.a.Namespace, false), n.d.at(false, webPort), "/public/x")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}

// streaming is a request whose body grows until it is ended.
type streaming struct {
	body  *io.PipeWriter
	ended chan error
}

// stream begins a request that ends with check.
func (n *serviceNodes) stream(server netip.AddrPort) *streaming {
	n.Helper()
	r, w := io.Pipe()
	s := &streaming{body: w, ended: make(chan error, 1)}
	client := webClient(n.T, n.a.Namespace, true)
	client.Timeout = time.Minute
	go func() {
		request, err := http.NewRequest(http.MethodGet, "http://"+server.String()+"/public/stream", r)
		if err == nil {
			var response *http.Response
			if response, err = client.Do(request); err == nil {
				defer response.Body.Close()
				if response.StatusCode != http.StatusOK {
					err = fmt.Errorf("status %d", response.StatusCode)
				}
			}
		}
		s.ended <- err
	}()
	if _, err := fmt.Fprint(w, "begun"); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = w.CloseWithError(errors.New("the test is over")) })
	return s
}

func (s *streaming) check(t *testing.T, when string) {
	t.Helper()
	_, err := fmt.Fprint(s.body, " and over")
	if err = errors.Join(err, s.body.Close(), <-s.ended); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}
