package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// hostPort is the port of the node that leads to the container.
const hostPort = 8090

// withPorts returns a container of the pod demo/NAME that asks for host ports: "tcp 8090", "udp 192.0.2.1 8090". Each
// leads to backendPort.
func withPorts(t testing.TB, name string, ports ...string) *testutil.Container {
	t.Helper()
	c := testutil.NewContainer(t)
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "demo"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "u-" + c.ID[:8]}}
	var mappings []any
	for _, text := range ports {
		words := strings.Fields(text)
		m := map[string]any{"containerPort": backendPort, "protocol": words[0], "hostIP": ""}
		if len(words) == 3 {
			m["hostIP"] = words[1]
		}
		var number int
		if _, err := fmt.Sscan(words[len(words)-1], &number); err != nil {
			t.Fatal(err)
		}
		m["hostPort"] = number
		mappings = append(mappings, m)
	}
	c.Caps = map[string]any{"portMappings": mappings}
	return c
}

// TestHostPort: host ports beside kube-proxy's rules, of Porin's own and by portmap, which runs after porin-cni.
func TestHostPort(t *testing.T) {
	t.Parallel()
	runtimes := map[string]func(*serviceNodes) *testutil.CNI{
		"own":     func(n *serviceNodes) *testutil.CNI { return n.one.cni },
		"portmap": (*serviceNodes).portMapRuntime,
	}
	for name, runtimeOf := range runtimes {
		t.Run(name, func(t *testing.T) {
			forEachProxyMode(t, func(t *testing.T, mode proxyMode) { testHostPort(t, mode, runtimeOf) })
		})
	}
}

func testHostPort(t *testing.T, mode proxyMode, runtimeOf func(*serviceNodes) *testutil.CNI) {
	n := newServiceNodes(t, mode)
	runtime := runtimeOf(n)
	c := withPorts(t, "e", "tcp 8090", "udp 8090")
	e := podOf(c, runtime.MustAdd(t, c)).party("e")
	n.forEachFamily(func(t *testing.T, six bool) {
		respond(t, e.Namespace, e.name, e.at(six, backendPort))
		for _, c := range n.hostPortCases(e, six) {
			for _, protocol := range protocols {
				t.Run(strings.ReplaceAll(c.name+" "+protocol, " ", "_"), func(t *testing.T) { c.run(t, protocol) })
			}
		}
	})
	if err := runtime.Check(c); err != nil {
		t.Error(err)
	}
	n.nothingDropped()
	runtime.MustDel(t, c)
	if conn, err := openDialog(n.outside.Namespace, "tcp", 0, n.node1.at(false, hostPort), answerTime); err == nil {
		conn.Close()
		t.Error("the host port is open after DEL")
	}
}

// portMapRuntime is one of the first node whose network has portmap, which writes its rules in the form that kube-proxy
// has.
func (n *serviceNodes) portMapRuntime() *testutil.CNI {
	n.Helper()
	node := n.one.node
	node.InstallPlugin(n, filepath.Join(testutil.Build(n), "porin-cni"))
	node.InstallPlugin(n, testutil.MetaPlugin(n, "portmap"))
	portMap := map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true, "backend": n.mode.String()}
	without := map[string]any{"capabilities": map[string]bool{"ips": true}}
	return node.NewCNI(n, testutil.CNIConfig{Bin: node.PluginDir, Network: "hostports", Plugin: without, Chained: []any{portMap}})
}

func (n *serviceNodes) hostPortCases(e party, six bool) []serviceCase {
	var own netip.Addr
	at, node1 := n.node1.at(six, hostPort), n.node1.addr(six)
	cases := []serviceCase{
		{"pod of the node", n.a, at, map[string]netip.Addr{"e": own}},
		{"pod to itself", e, at, map[string]netip.Addr{"e": node1}},
		{"node", n.node1, at, map[string]netip.Addr{"e": node1}},
		{"pod of another node", n.d, at, map[string]netip.Addr{"e": own}},
		{"another node", n.node2, at, map[string]netip.Addr{"e": own}},
		{"outside", n.outside, at, map[string]netip.Addr{"e": own}},
	}
	if !six { // the kernel has no such thing for ::1
		loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), hostPort)
		cases = append(cases, serviceCase{"loopback of the node", n.node1, loopback, map[string]netip.Addr{"e": node1}})
	}
	return cases
}

// hostPortNode is a node with agent, and a host outside that has no route to the pods.
type hostPortNode struct {
	*rig
	outside, itself party
}

func newHostPortNode(t *testing.T, flags ...string) *hostPortNode {
	t.Helper()
	r := newRig(t, flags...)
	return &hostPortNode{r, party{"outside", r.node.Fabric.Namespace, testutil.OutsideIPv4, testutil.OutsideIPv6}, nodeParty(r.node)}
}

// serving attaches the container, with a server of each family.
func (n *hostPortNode) serving(c *testutil.Container, name string) pod {
	n.Helper()
	p := n.add(c)
	for _, addr := range []netip.Addr{p.ipv4, p.ipv6} {
		respond(n, p.Namespace, name, netip.AddrPortFrom(addr, backendPort))
	}
	return p
}

// answersAs checks which container answers at a port of the node, to the outside by default; "" is none.
func (n *hostPortNode) answersAs(when, server string, to netip.AddrPort, from party) {
	n.Helper()
	within := answerTime
	if server == "" {
		within = deniedTime
	}
	for _, protocol := range protocols {
		got := ""
		conn, err := openDialog(from.Namespace, protocol, 0, to, within)
		if err == nil {
			var a answer
			if a, err = conn.askWithin("who", within); err == nil {
				got = a.server
			}
			conn.Close()
		}
		if got != server {
			n.Errorf("%s: %q answers at %s by %s, want %q: %v", when, got, to, protocol, server, err)
		}
	}
}

func (n *hostPortNode) everywhere(when, server string) {
	n.Helper()
	for _, six := range []bool{false, true} {
		n.answersAs(when, server, n.itself.at(six, hostPort), n.outside)
		n.answersAs(when, server, n.itself.at(six, hostPort), n.itself)
	}
	n.answersAs(when, server, netip.MustParseAddrPort("127.0.0.1:8090"), n.itself)
}

func (n *hostPortNode) table() string {
	return onNode(n, n.node, "", "nft", "list", "tables")
}

func TestHostPortHostIP(t *testing.T) {
	n := newHostPortNode(t)
	loopback := netip.MustParseAddrPort("127.0.0.1:8090")
	for hostIP, want := range map[string][3]bool{ // by the node's IPv4, its IPv6, and 127.0.0.1
		n.node.IPv4.String(): {true, false, false},
		n.node.IPv6.String(): {false, true, false},
		"0.0.0.0":            {true, false, true},
		"::":                 {false, true, false},
		"127.0.0.1":          {false, false, true},
	} {
		c := withPorts(t, "web", "tcp "+hostIP+" 8090", "udp "+hostIP+" 8090")
		n.serving(c, "web")
		for i, to := range []netip.AddrPort{n.itself.at(false, hostPort), n.itself.at(true, hostPort), loopback} {
			server := ""
			if want[i] {
				server = "web"
			}
			n.answersAs(hostIP, server, to, n.itself)
			if i < 2 {
				n.answersAs(hostIP+" from outside", server, to, n.outside)
			}
		}
		n.answersAs(hostIP+" by ::1", "", netip.MustParseAddrPort("[::1]:8090"), n.itself)
		n.cni.MustDel(t, c)
	}
	if text := n.table(); text != "" {
		t.Errorf("there is left %s", text)
	}
}

func TestHostPortTaken(t *testing.T) {
	n := newHostPortNode(t)
	first := withPorts(t, "first", "tcp 8090", "udp 8090")
	n.serving(first, "first")
	second := withPorts(t, "second", "tcp "+n.node.IPv4.String()+" 8090", "tcp 8091", "udp 8091")
	n.failsWith(second, codeConflict, "host port is taken: TCP 0.0.0.0:8090 is that of pod demo/first, container "+first.ID+":eth0", "wait until that")
	n.answersAs("after the refusal", "", netip.AddrPortFrom(n.node.IPv4, 8091), n.outside)
	n.everywhere("after the refusal", "first")
	out, err := n.porin("endpoint", "get", "demo/first")
	if err != nil || !strings.Contains(out, "TCP 8090 to 8080") || !strings.Contains(out, "UDP 8090 to 8080") {
		t.Errorf("endpoint get: %v\n%s", err, out)
	}
	n.cni.MustDel(t, first)
	n.serving(second, "second")
	n.answersAs("after the DEL", "second", netip.AddrPortFrom(n.node.IPv4, 8091), n.outside)
}

// TestHostPortReplacedPod: the pod of a StatefulSet is created again, and the DEL of the previous one comes late, or
// never.
func TestHostPortReplacedPod(t *testing.T) {
	n := newHostPortNode(t)
	old := withPorts(t, "db-0", "tcp 8090", "udp 8090")
	n.serving(old, "old")
	n.everywhere("the old one", "old")
	n.serving(withPorts(t, "db-0", "tcp 8090", "udp 8090"), "new")
	n.everywhere("before the old one's DEL", "new")
	n.cni.MustDel(t, old)
	n.everywhere("after the old one's DEL", "new")
	n.agrees()
}

// TestHostPortOutlives: rules outlive an agent that is killed, an agent that stops, and a flush meanwhile or
// afterwards.
func TestHostPortOutlives(t *testing.T) {
	n := newHostPortNode(t, "--doctor-interval=0")
	c := withPorts(t, "web", "tcp 8090", "udp 8090")
	n.serving(c, "web")
	gone := withPorts(t, "gone", "tcp 8091")
	n.serving(gone, "gone")
	conn, err := openDialog(n.outside.Namespace, "tcp", 0, n.itself.at(false, hostPort), answerTime)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	flush := func() { onNode(t, n.node, "flush ruleset\n", "nft", "-f", "-") }
	for when, do := range map[string]func(){
		"killed":             func() { n.agent.Kill(t) },
		"stopped":            func() { n.agent.Stop(t) },
		"killed and flushed": func() { n.agent.Kill(t); flush() },
	} {
		do()
		if when != "killed and flushed" {
			n.everywhere(when, "web")
		}
		n.agent.Start(t)
		n.everywhere(when+" and started", "web")
		if _, err := conn.ask(); err != nil {
			t.Errorf("%s: the open connection: %v", when, err)
		}
		n.agrees()
	}
	flush()
	testutil.Eventually(t, func() error {
		if text := n.table(); !strings.Contains(text, "porin-hostport") {
			return fmt.Errorf("the tables are %q", text)
		}
		return nil
	})
	n.everywhere("flushed", "web")
	n.agent.Kill(t)
	n.cni.MustDel(t, gone) // by the plugin alone
	n.agent.Start(t)
	n.answersAs("deleted without an agent", "", netip.AddrPortFrom(n.node.IPv4, 8091), n.outside)
	n.everywhere("after the deletion without an agent", "web")
	if err := n.cni.GC(); err != nil {
		t.Fatal(err)
	}
	n.everywhere("after GC", "")
	if text := n.table(); text != "" {
		t.Errorf("there is left %s", text)
	}
	n.nothingLeft()
}

// TestHostPortUDPClientStays: a client that keeps its port reaches whoever has the host port, at once.
func TestHostPortUDPClientStays(t *testing.T) {
	n := newHostPortNode(t)
	n.add(withPorts(t, "other", "tcp 8091")) // while the table is there, connections are tracked
	n.forEachFamilyOf(func(t *testing.T, six bool) {
		for _, from := range []party{n.outside, n.itself} {
			conn, err := openDialog(from.Namespace, "udp", 0, n.itself.at(six, hostPort), answerTime)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(want string) {
				t.Helper()
				a, err := conn.askWithin("who", answerTime)
				if want == "" && errors.Is(err, unix.ECONNREFUSED) {
					return
				}
				if err != nil || a.server != want {
					t.Errorf("from %s: %q answers, %v, want %q", from.name, a.server, err, want)
				}
			}
			ask("") // the node refuses it
			for _, name := range []string{"first", "second"} {
				c := withPorts(t, name, "udp 8090")
				p := n.add(c)
				addr := p.ipv4
				if six {
					addr = p.ipv6
				}
				server := respond(t, p.Namespace, name, netip.AddrPortFrom(addr, backendPort))
				ask(name)
				n.cni.MustDel(t, c)
				server.close()
				ask("")
			}
			conn.Close()
		}
	})
}

func (n *hostPortNode) forEachFamilyOf(test func(t *testing.T, six bool)) {
	n.Helper()
	for six, name := range map[bool]string{false: "IPv4", true: "IPv6"} {
		n.Run(name, func(t *testing.T) { test(t, six) })
	}
}

// TestHostPortPolicy: the pod's ingress policy sees who the client really is.
func TestHostPortPolicy(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		c := withPorts(t, "e", "tcp 8090", "udp 8090")
		e := podOf(c, n.one.cni.MustAdd(t, c)).party("e")
		n.forEachFamily(func(t *testing.T, six bool) {
			respond(t, e.Namespace, e.name, e.at(six, backendPort))
			at := n.node1.at(six, hostPort)
			for allowed, from := range map[string]string{
				"outside": fmt.Sprintf("ipBlock: {cidr: %s}", prefixOf(n.outside.addr(six))),
				"node2":   fmt.Sprintf("ipBlock: {cidr: %s}", prefixOf(n.node2.addr(six))),
				"d":       fmt.Sprintf("ipBlock: {cidr: %s}", prefixOf(n.d.addr(six))),
				"a":       "podSelector: {matchLabels: {app: a}}",
			} {
				n.policy("{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{" + from + "}]}]}")
				cases := []policyCase{{"the node", n.node1, at, true}}
				for _, client := range []party{n.outside, n.node2, n.d, n.a, n.b} {
					cases = append(cases, policyCase{client.name, client, at, client.name == allowed})
				}
				checkCases(t, allowed+" is allowed", cases)
			}
			n.policy("{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: []}")
			checkCases(t, "egress of a", []policyCase{{"a", n.a, at, false}, {"b", n.b, at, true}})
			n.noPolicy()
		})
	})
}

// TestHostPortRouteLocalnet: route_localnet is on the host ends that need it, and on nothing else.
func TestHostPortRouteLocalnet(t *testing.T) {
	n := newHostPortNode(t)
	loopback, other := n.add(withPorts(t, "web", "tcp 8090")), n.add(withPorts(t, "other", "tcp "+n.node.IPv4.String()+" 8091"))
	for name, want := range map[string]string{"all": "0", "eth0": "0", n.host(other.Container).Name: "0", n.host(loopback.Container).Name: "1"} {
		if got := strings.TrimSpace(onNode(t, n.node, "", "cat", "/proc/sys/net/ipv4/conf/"+name+"/route_localnet")); got != want {
			t.Errorf("route_localnet of %s is %s, want %s", name, got, want)
		}
	}
}
