package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// cache gives node1 a device with addresses of its own, as a cache for names has it, and serves names there. It returns
// when the agent has heard of them.
func (n *serviceNodes) cache() party {
	t, node := n.T, n.one.node
	t.Helper()
	cache := party{"cache", node.Namespace, netip.MustParseAddr("169.254.20.10"), netip.MustParseAddr("fd00:20::10")}
	handle := node.Netlink(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "nodelocaldns"
	device := &netlink.Veth{LinkAttrs: attrs, PeerName: "nodelocaldns2"} // a dummy device would do, which not every kernel has
	if err := handle.LinkAdd(device); err != nil {
		t.Fatal(err)
	}
	for _, six := range []bool{false, true} {
		address := testutil.Address(netip.PrefixFrom(cache.addr(six), cache.addr(six).BitLen()))
		if err := handle.AddrAdd(device, address); err != nil {
			t.Fatal(err)
		}
	}
	if err := handle.LinkSetUp(device); err != nil {
		t.Fatal(err)
	}
	serveNames(t, cache)
	for _, six := range []bool{false, true} {
		testutil.Eventually(t, func() error {
			x := decoded[v1.PolicyExplanation](n.one, "policy", "explain", "--from", "demo/a", "--to", cache.addr(six).String(), "--port", strconv.Itoa(dnsPort))
			if x.To.Kind != "host" {
				return fmt.Errorf("the agent takes %s for %s", cache.addr(six), x.To.Kind)
			}
			return nil
		})
	}
	return cache
}

// untracked writes the rules of node-local-dns: conntrack does not track packets to and from the cache.
func untracked(t *testing.T, cache party, node *testutil.Node) {
	t.Helper()
	for _, six := range []bool{false, true} {
		program := "iptables-legacy-restore"
		if six {
			program = "ip6tables-legacy-restore"
		}
		text := "*raw\n"
		for _, protocol := range protocols {
			for _, rule := range []string{"PREROUTING -d %s -p %s --dport %d", "OUTPUT -d %s -p %s --dport %d", "OUTPUT -s %s -p %s --sport %d"} {
				text += "-A " + fmt.Sprintf(rule, cache.addr(six), protocol, dnsPort) + " -j CT --notrack\n"
			}
		}
		onNode(t, node, text+"COMMIT\n", program, "--noflush")
	}
}

// TestDNSRulesNode has servers of names on the node itself: a cache with an address of its own, and behind a Service.
func TestDNSRulesNode(t *testing.T) {
	t.Parallel()
	testutil.Root(t)
	for _, mode := range testutil.Sample[proxyMode](nil, nftablesMode{}, iptablesMode{}) {
		for _, tracked := range []bool{true, false} {
			t.Run(fmt.Sprintf("kube-proxy %v, tracked %v", mode, tracked), func(t *testing.T) {
				n := newServiceNodes(t, mode, masquerading...)
				n.label()
				cache := n.cache()
				if !tracked {
					untracked(t, cache, n.one.node)
				}
				serveNames(t, n.node1)
				n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + exampleNames + "}]}")
				n.forEachFamily(func(t *testing.T, six bool) {
					cases := []httpCase{
						{"a to the cache", n.a, cache.at(six, dnsPort), "cache", false},
						{"a to the node", n.a, n.node1.at(six, dnsPort), n.node1.name, false},
					}
					if mode != nil {
						cases = append(cases, httpCase{"a to the node by a Service", n.a, n.at(hostNames, six), n.node1.name, false})
					}
					checkDNS(t, six, cases)
				})
			})
		}
	}
}

// TestDNSRulesNodeAway: the server on the node answers no query past the proxy, neither while the agent is away nor
// while the program that finds the proxy's sockets, or the table that delivers packets to them, is.
func TestDNSRulesNodeAway(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	cache := n.cache()
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + exampleNames + "}]}")
	allowed := func(network string, six bool) error {
		return httpCase{"a to the cache", n.a, cache.at(six, dnsPort), "cache", false}.checkName(network, six)
	}
	for name, remove := range map[string]func(){
		"agent":   func() { n.one.agent.Kill(t) },
		"program": func() { n.one.agent.Kill(t); n.detachListener() },
		"table":   func() { n.one.agent.Kill(t); n.shell("nft delete table inet porin-proxy") },
	} {
		remove()
		for _, six := range []bool{false, true} {
			for _, network := range []string{"udp", "tcp"} {
				if answer, err := n.a.resolveWithin(300*time.Millisecond, network, cache.at(six, dnsPort), "www.example.org."); err == nil {
					t.Errorf("without %s, by %s, IPv6 %v: %v", name, network, six, answer)
				}
			}
		}
		n.one.agent.Start(t)
		for _, six := range []bool{false, true} {
			for _, network := range []string{"udp", "tcp"} {
				testutil.Eventually(t, func() error { return allowed(network, six) })
			}
		}
	}
}

// detachListener takes the program select_listener away.
func (n *serviceNodes) detachListener() {
	n.Helper()
	if err := os.Remove(filepath.Join(n.one.node.BPFRoot, "proxy", "select_listener")); err != nil {
		n.Fatal(err)
	}
}

// TestHTTPRulesNode has rules for what a pod asks of the node itself.
func TestHTTPRulesNode(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		serveWeb(t, n.node1)
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{toEntities: [host], " + publicOnly + "}]}")
		n.forEachFamily(func(t *testing.T, six bool) {
			checkHTTP(t, six, []httpCase{
				{"a to the node", n.a, n.node1.at(six, webPort), n.node1.name, false},
				{"a to the node by a Service", n.a, n.at(hostWeb, six), n.node1.name, false},
			})
			if status, body, err := get(webClient(t, n.b.Namespace, false), n.node1.at(six, webPort), "/private"); err != nil || status != http.StatusOK {
				t.Errorf("b, which has no rules: %d %q, %v", status, body, err)
			}
			if conn, err := n.a.Dial(n.node1.at(six, backendPort), 300*time.Millisecond); err == nil {
				conn.Close()
				t.Error("a reaches a port of the node for which there is no rule")
			}
		})
	})
}
