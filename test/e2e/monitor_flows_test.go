package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// flowCase is a connection, and how its one flow is shown: verdict, ends, Service, and the rule.
type flowCase struct {
	policyCase
	want string
}

// flowText has what is the same for each try.
func flowText(f v1.Flow) string {
	end := func(e v1.FlowEnd) string {
		if e.Pod.Name == "" {
			return e.Kind + " " + e.Address.String()
		}
		return fmt.Sprintf("%s/%s %s", e.Pod.Namespace, e.Pod.Name, e.Labels["app"])
	}
	if strings.HasPrefix(f.Protocol, "ICMP") {
		f.To.Port = 0 // an echo's identifier
	}
	text := fmt.Sprintf("%s %s %s -> %s:%d", f.Verdict, f.Protocol, end(f.From), end(f.To), f.To.Port)
	if f.Service.Address.IsValid() {
		text += " by " + netip.AddrPortFrom(f.Service.Address, f.Service.Port).String()
	}
	for _, d := range []*v1.PolicyDecision{f.Egress, f.Ingress} {
		if d != nil && d.Rule != nil {
			text += fmt.Sprintf(", %s rule %d of %s", d.Rule.Direction, d.Rule.Index, d.Rule.Policy)
		}
	}
	return text
}

// flowsSince reads flows until one is like each of want.
func (n *serviceNodes) flowsSince(since uint64, want ...string) (texts []string, last uint64) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), reach)
	defer cancel()
	for f, err := range n.one.api.Flows(ctx, client.FlowOptions{Since: since, Follow: true}) {
		if err != nil {
			n.Errorf("flows: %v", err)
			break
		}
		if f.Lost > 0 {
			n.Errorf("%d flows were lost", f.Lost)
		}
		text := flowText(f)
		texts, last = append(texts, text), f.Seq
		if want = slices.DeleteFunc(want, func(w string) bool { return w == text }); len(want) == 0 {
			return texts, last
		}
	}
	n.Errorf("no such flows came: %q; those that came: %q", want, texts)
	return texts, last
}

// flowCases: a may reach b alone.
func (n *serviceNodes) flowCases(six bool, protocol string) []flowCase {
	name := strings.ToUpper(protocol)
	text := func(verdict, from, to string, by netip.AddrPort, rule string) string {
		text := fmt.Sprintf("%s %s %s -> %s:%d", verdict, name, from, to, backendPort)
		if by.IsValid() {
			text += " by " + by.String()
		}
		return text + rule
	}
	var direct netip.AddrPort
	world := func(p party) string { return "world " + p.addr(six).String() }
	node := "host " + n.node1.addr(six).String()
	const allows, denies = ", egress rule 0 of test", ", egress rule -1 of test"
	return []flowCase{
		{policyCase{"a to b", n.a, n.b.at(six, backendPort), true}, text("allowed", "demo/a a", "demo/b b", direct, allows)},
		{policyCase{"a to b by a Service", n.a, n.at(local, six), true}, text("allowed", "demo/a a", "demo/b b", n.at(local, six), allows)},
		{policyCase{"a to c", n.a, n.c.at(six, backendPort), false}, text("denied", "demo/a a", "demo/c c", direct, denies)},
		{policyCase{"a to the other node's pod", n.a, n.d.at(six, backendPort), false}, text("denied", "demo/a a", world(n.d), direct, denies)},
		{policyCase{"a to the other node's pod by a Service", n.a, n.at(remote, six), false}, text("denied", "demo/a a", world(n.d), n.at(remote, six), denies)},
		{policyCase{"a to its node", n.a, n.node1.at(six, backendPort), false}, text("denied", "demo/a a", node, direct, denies)},
		{policyCase{"b to the other node's pod by a Service", n.b, n.at(remote, six), true}, text("allowed", "demo/b b", world(n.d), n.at(remote, six), "")},
		{policyCase{"the other node's pod to a", n.d, n.a.at(six, backendPort), true}, text("allowed", world(n.d), "demo/a a", direct, "")},
		{policyCase{"the node to a", n.node1, n.a.at(six, backendPort), true}, text("allowed", node, "demo/a a", direct, "")},
		{policyCase{"outside to b by a node port", n.outside, n.nodePort(local, n.node1, six), true}, text("allowed", world(n.outside), "demo/b b", n.nodePort(local, n.node1, six), "")},
	}
}

const aMayReachB = "{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: b}}}], ports: [{port: 8080}, {port: 8080, protocol: UDP}]}]}"

// TestFlows has real connections, allowed and denied ones, and by Services: each is shown once, with the real ends,
// their labels and the rule.
func TestFlows(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		n.policy(aMayReachB)
		n.forEachFamily(func(t *testing.T, six bool) {
			for _, protocol := range protocols {
				_, seq := n.flowsNow()
				want, again := map[string]int{}, map[string]bool{}
				for _, c := range n.flowCases(six, protocol) {
					want[c.want]++
					within := deniedTime
					if c.allowed {
						within = answerTime
					}
					start := time.Now()
					if err := reachWithin(c.from, protocol, c.to, within); (err == nil) != c.allowed {
						t.Errorf("%s by %s: error %v, allowed %v", c.name, protocol, err, c.allowed)
					}
					again[c.want] = again[c.want] || time.Since(start) > 900*time.Millisecond
				}
				// The records after this one are of others.
				if err := reachWithin(n.c, "tcp", n.b.at(six, backendPort), answerTime); err != nil {
					t.Error(err)
				}
				const end = "allowed TCP demo/c c -> demo/b b:8080"
				want[end]++
				got, _ := n.flowsSince(seq, end)
				for _, text := range got {
					want[text]--
				}
				for text, left := range want {
					if left < 0 && again[text] { // the SYN was sent again, after a second: the machine is busy
						continue
					}
					if left != 0 && !strings.Contains(text, "ICMP") { // a pod's stack speaks when it likes
						t.Errorf("by %s: %d too few, or too many if below 0, of: %s", protocol, left, text)
					}
				}
			}
		})
	})
}

// TestFlowsOfPings has no ports that tell connections apart.
func TestFlowsOfPings(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.policy(aMayReachB)
	n.forEachFamily(func(t *testing.T, six bool) {
		protocol := map[bool]string{false: "ICMP", true: "ICMPv6"}[six]
		_, seq := n.flowsNow()
		ping := func(from, to party, allowed bool) {
			if err := testutil.Ping(from.Namespace, to.addr(six), map[bool]time.Duration{true: answerTime, false: deniedTime}[allowed]); (err == nil) != allowed {
				t.Errorf("%s to %s: %v, allowed %v", from.name, to.name, err, allowed)
			}
		}
		ping(n.a, n.d, false)
		ping(n.a, n.node1, false)
		ping(n.a, n.b, false) // the rule has ports
		ping(n.c, n.d, true)
		ping(n.d, n.b, true)
		text := func(verdict, from, to, rule string) string {
			return fmt.Sprintf("%s %s %s -> %s:0%s", verdict, protocol, from, to, rule)
		}
		world, host := "world "+n.d.addr(six).String(), "host "+n.node1.addr(six).String()
		const denies = ", egress rule -1 of test"
		n.flowsSince(seq, text("denied", "demo/a a", world, denies), text("denied", "demo/a a", host, denies), text("denied", "demo/a a", "demo/b b", denies),
			text("allowed", "demo/c c", world, ""), text("allowed", world, "demo/b b", ""))
	})
}

// TestPolicyDiffOfFlows tries a policy with what was seen.
func TestPolicyDiffOfFlows(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for range 2 {
		if err := reachWithin(n.a, "tcp", n.at(local, false), answerTime); err != nil {
			t.Fatal(err)
		}
	}
	n.flowsSince(0, "allowed TCP demo/a a -> demo/b b:8080 by "+n.at(local, false).String())
	file := filepath.Join(t.TempDir(), "isolate.yaml")
	const isolate = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: isolate, namespace: demo}\nspec: {podSelector: {matchLabels: {app: b}}}\n"
	if err := os.WriteFile(file, []byte(isolate), 0o600); err != nil {
		t.Fatal(err)
	}
	d := decoded[v1.PolicyDiff](n.one, "policy", "diff", "-f", file)
	if d.Flows == 0 || d.Changed != 1 || len(d.Changes) != 1 {
		t.Fatalf("diff %+v, want one connection that would be denied", d)
	}
	c := d.Changes[0]
	if c.From.Pod.Name != "a" || c.To.Pod.Name != "b" || c.Protocol != "TCP" || c.Port != backendPort || c.Count != 2 || !c.Now.Allowed || c.Then.Allowed {
		t.Errorf("change %+v, want a to b, twice", c)
	}
}

// flowsNow are the flows so far, and the number of the last one.
func (n *serviceNodes) flowsNow() (flows []v1.Flow, last uint64) {
	n.Helper()
	for f, err := range n.one.api.Flows(n.Context(), client.FlowOptions{}) {
		if err != nil {
			n.Fatal(err)
		}
		flows, last = append(flows, f), f.Seq
	}
	return flows, last
}

// TestFlowsOverRestart: what happens while no agent runs is shown by the next one, and what was shown is not shown
// again.
func TestFlowsOverRestart(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.policy(aMayReachB)
	toC := func() { _ = reachWithin(n.a, "udp", n.c.at(false, backendPort), 50*time.Millisecond) }
	toB := func() {
		if err := reachWithin(n.a, "udp", n.b.at(false, backendPort), answerTime); err != nil {
			t.Error(err)
		}
	}
	const denied = "denied UDP demo/a a -> demo/c c:8080, egress rule -1 of test"
	const allowed = "allowed UDP demo/a a -> demo/b b:8080, egress rule 0 of test"
	toB()
	n.flowsSince(0, allowed)
	for _, end := range []func(){func() { n.one.agent.Kill(t) }, func() { n.one.agent.Stop(t) }} {
		end()
		toC()
		n.one.agent.Start(t)
		flows, _ := n.flowsSince(0, denied)
		if slices.Contains(flows, allowed) {
			t.Errorf("flows %q: one is told again", flows)
		}
		toB()
		n.flowsSince(0, denied, allowed)
	}
}

// TestMonitorCommand follows the flows of a pod, and asks for some.
func TestMonitorCommand(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.policy(aMayReachB)
	_ = reachWithin(n.a, "tcp", n.c.at(false, backendPort), deniedTime)
	_ = reachWithin(n.a, "tcp", n.b.at(false, backendPort), answerTime)
	n.flowsSince(0, "denied TCP demo/a a -> demo/c c:8080, egress rule -1 of test", "allowed TCP demo/a a -> demo/b b:8080, egress rule 0 of test")
	done := n.one.cli("monitor", "--pod", "demo/a", "--verdict", "denied", "--protocol", "tcp", "--port", "8080", "--last", "1")
	if done.code != 0 || done.err != "" || !strings.HasSuffix(done.out, " -> demo/c:8080  egress by NetworkPolicy demo/test (egress), default deny\n") || strings.Count(done.out, "\n") != 1 {
		t.Errorf("monitor: %+v", done)
	}
	if done := n.one.cli("monitor", "--pod", "a"); done.code != 2 || !strings.Contains(done.err, `pod="a": want NAMESPACE/NAME`) {
		t.Errorf("monitor --pod a: %+v", done)
	}
	_ = reachWithin(n.a, "tcp", n.node1.at(false, backendPort), deniedTime)
	n.one.expectAtLeast(map[string]float64{
		`porin_datapath_filter_drops_total{chain="input"}`:                   1,
		`porin_datapath_policy_entries{map="addresses"}`:                     6,
		`porin_datapath_policy_entries{map="tables"}`:                        1,
		`porin_datapath_policy_capacity{map="rows"}`:                         1000,
		`porin_monitor_flows_total{reason="",verdict="allowed"}`:             1,
		`porin_monitor_flows_total{reason="policy-egress",verdict="denied"}`: 1,
	})
	if _, err := n.one.api.UpdateEndpoint(t.Context(), "pod-name:demo/a", v1.EndpointPatch{Audit: new(true)}); err != nil {
		t.Fatal(err)
	}
	if err := reachWithin(n.a, "udp", n.c.at(false, backendPort), answerTime); err != nil {
		t.Errorf("in audit: %v", err)
	}
	n.flowsSince(0, "audit UDP demo/a a -> demo/c c:8080, egress rule -1 of test")
}

// expectAtLeast compares some of the metrics.
func (r *rig) expectAtLeast(least map[string]float64) {
	r.Helper()
	all := r.metrics()
	for name, value := range least {
		if all[name] < value {
			r.Errorf("%s is %v, want %v at least", name, all[name], value)
		}
	}
}

// flood sends datagrams that are denied for a second, and returns how many, and how much time of a CPU that took.
func (n *serviceNodes) flood() (sent int, cpu time.Duration) {
	n.Helper()
	err := n.a.Do(func() error {
		began := threadTime(n)
		defer func() { cpu = threadTime(n) - began }()
		conn, err := net.Dial("udp", n.c.at(false, backendPort).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		for end := time.Now().Add(time.Second); time.Now().Before(end); sent++ {
			if _, err := conn.Write([]byte("flood")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.Error(err)
	}
	return sent, cpu
}

func threadTime(t testing.TB) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Error(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestFlowFlood has a pod send what is denied as fast as it can: the datapath goes on, the agent's memory and time are
// bounded, and it says what it has lost.
func TestFlowFlood(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.policy(aMayReachB)
	n.one.agent.Stop(t)
	n.flood() // fills the kernel's buffer
	sent, spent := n.flood()
	without := spent / time.Duration(sent)
	n.one.agent.Start(t)
	process := n.one.agent.PID()
	cpuBefore, memoryBefore := usage(t, process)
	sent, spent = 0, 0
	var running sync.WaitGroup
	running.Go(func() {
		for range 3 {
			more, time := n.flood()
			sent, spent = sent+more, spent+time
		}
	})
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	asked := 0
	conn := n.mustConverse(t, "tcp", n.b.at(false, backendPort))
	for flooding := true; flooding; asked++ {
		if _, err := conn.ask(); err != nil {
			t.Fatalf("after %d questions in the flood: %v", asked, err)
		}
		select {
		case <-done:
			flooding = false
		default:
		}
	}
	conn.Close()
	cpu, memory := usage(t, process)
	cpu, memory = cpu-cpuBefore, memory-memoryBefore
	with := spent / time.Duration(sent)
	t.Logf("%d packets were denied in 3 s, each took %s of a CPU, and %s without an agent; %d questions were answered meanwhile; the agent took %s and %d KiB more",
		sent, with, without, asked, time.Duration(cpu), memory>>10)
	if with > 3*without { // the machine is busy
		t.Errorf("with an agent that reads, a packet takes %s of a CPU, and %s without", with, without)
	}
	if memory > 32<<20 {
		t.Errorf("the agent has %d MiB more", memory>>20)
	}
	flows, _ := n.flowsNow()
	var lost uint64
	for _, f := range flows {
		lost += f.Lost
	}
	if all := n.one.metrics()["porin_monitor_flows_lost_total"]; len(flows) > 10_000 || lost == 0 || all < float64(lost) {
		t.Errorf("%d flows are kept, %d of them lost, and %v in all", len(flows), lost, all)
	}
}

// usage is the CPU time of a process in ns, and its resident memory in bytes.
func usage(t *testing.T, pid int) (cpu, memory int64) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:])) // from the third one on, see proc(5)
	var values [3]int64
	for i, number := range []int{14, 15, 24} { // utime, stime, rss
		if values[i], err = strconv.ParseInt(fields[number-3], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	const tick = 10 * time.Millisecond
	return (values[0] + values[1]) * int64(tick), values[2] * int64(os.Getpagesize())
}

// TestFlowNames has a pod ask for a name, and connect to the address: API and command line say the name, for this pod
// alone.
func TestFlowNames(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveNames(t, n.b)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + exampleNames + "}, {toCIDR: [198.51.100.0/24]}]}")
	if answer, err := n.a.resolve("udp", n.b.at(false, dnsPort), "www.example.com."); err != nil || len(answer.Answer) != 1 {
		t.Fatalf("answer %v, %v", answer, err)
	}
	server := netip.MustParseAddrPort("198.51.100.9:443") // an address that no host has
	for _, p := range []party{n.a, n.c} {
		_ = reachWithin(p, "udp", server, 50*time.Millisecond)
	}
	n.flowsSince(0, "allowed UDP demo/a a -> world 198.51.100.9:443, egress rule 1 of web", "allowed UDP demo/c c -> world 198.51.100.9:443")
	flows, _ := n.flowsNow()
	for _, f := range flows {
		want := []string(nil)
		if f.To.Address == server.Addr() && f.From.Pod.Name == "a" {
			want = []string{"www.example.com"}
		}
		if !slices.Equal(f.To.Names, want) {
			t.Errorf("names %q, want %q, of flow %+v", f.To.Names, want, f)
		}
	}
	if done := n.one.cli("monitor", "--pod", "demo/a", "--port", "443"); done.code != 0 || !strings.Contains(done.out, " -> 198.51.100.9:443 named www.example.com  egress by") {
		t.Errorf("monitor: %+v", done)
	}
}
