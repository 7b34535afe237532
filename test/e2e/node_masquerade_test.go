package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// masquerading are the flags of nodes that know nothing of each other: they are told what the cluster is.
var masquerading = []string{"--masquerade=both", "--masquerade-exclude=10.100.0.0/16,fd00:10::/32,192.0.2.0/24,2001:db8::/64"}

// newMasqueradingNodes are two of them, and a responder outside.
func newMasqueradingNodes(t *testing.T, mode proxyMode) *serviceNodes {
	t.Helper()
	n := newServiceNodes(t, mode, masquerading...)
	for _, six := range []bool{false, true} {
		respond(t, n.outside.Namespace, "outside", n.outside.at(six, backendPort))
	}
	return n
}

// outsideCases: the world outside sees nodes, though it knows a way to the pods, and is seen as it is.
func (n *serviceNodes) outsideCases(six bool) []serviceCase {
	at := n.outside.at(six, backendPort)
	return []serviceCase{
		{"pod to the outside", n.a, at, map[string]netip.Addr{"outside": n.node1.addr(six)}},
		{"pod of another node to the outside", n.d, at, map[string]netip.Addr{"outside": n.node2.addr(six)}},
		{"node to the outside", n.node1, at, map[string]netip.Addr{"outside": n.node1.addr(six)}},
		{"outside to a pod", n.outside, n.a.at(six, backendPort), map[string]netip.Addr{"a": {}}},
	}
}

// TestMasquerade: what stays in the cluster keeps its address, through Services, too, and only what leaves it has the
// node's.
func TestMasquerade(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newMasqueradingNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			cases := append(n.clusterIPCases(six), n.nodePortCases(six)...)
			for _, c := range append(cases, n.outsideCases(six)...) {
				for _, protocol := range protocols {
					t.Run(strings.ReplaceAll(c.name+" "+protocol, " ", "_"), func(t *testing.T) { c.run(t, protocol) })
				}
			}
			if err := testutil.Ping(n.a.Namespace, n.outside.addr(six), answerTime); err != nil {
				t.Error(err)
			}
			n.refused(t, n.a, n.outside.at(six, closedPort))
		})
		n.nothingDropped()
	})
}

// refused checks that the ICMP error of a closed port comes back.
func (n *serviceNodes) refused(t *testing.T, from party, to netip.AddrPort) {
	t.Helper()
	if err := reachWithin(from, "udp", to, answerTime); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%s to a closed port, %s: %v, want its ICMP error", from.name, to, err)
	}
}

// TestMasqueradePolicy: egress policy decides by the real destination and the pod that sends, after the pod has got the
// node's address.
func TestMasqueradePolicy(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newMasqueradingNodes(t, mode)
		n.label()
		n.forEachFamily(func(t *testing.T, six bool) {
			const rule = "{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress, Ingress], egress: [{to: [{ipBlock: {cidr: %s}}], ports: [{port: 8080}, {port: %d, protocol: UDP}]}]}"
			n.policy(fmt.Sprintf(rule, prefixOf(n.outside.addr(six)), backendPort))
			checkCases(t, "outside allowed", []policyCase{
				{"a to the outside", n.a, n.outside.at(six, backendPort), true},
				{"a to another node", n.a, n.node2.at(six, backendPort), false},
				{"a to a pod of another node", n.a, n.d.at(six, backendPort), false},
				{"c to the outside", n.c, n.outside.at(six, backendPort), true},
				{"outside to a", n.outside, n.a.at(six, backendPort), false},
			})
			n.policy(fmt.Sprintf(rule, prefixOf(n.outside.addr(six)), closedPort))
			n.refused(t, n.a, n.outside.at(six, closedPort))
			n.policy(fmt.Sprintf(rule, prefixOf(n.node2.addr(six)), backendPort))
			checkCases(t, "outside denied", []policyCase{
				{"a to the outside", n.a, n.outside.at(six, backendPort), false},
				{"c to the outside", n.c, n.outside.at(six, backendPort), true},
			})
			n.noPolicy()
		})
		n.nothingDropped("policy-egress", "policy-ingress")
	})
}

// TestMasqueradeAnnotation: a pod that says so keeps its address from its first packet, over a restart too, and its
// ledger says so.
func TestMasqueradeAnnotation(t *testing.T) {
	r := newRig(t, masquerading[0])
	r.node.Fabric.RoutePods(t, r.node)
	r.cni = r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{
		"capabilities": map[string]bool{"io.kubernetes.cri.pod-annotations": true},
	}})
	outside := party{"outside", r.node.Fabric.Namespace, testutil.OutsideIPv4, testutil.OutsideIPv6}
	for _, six := range []bool{false, true} {
		respond(t, outside.Namespace, "outside", outside.at(six, backendPort))
	}
	sees := func(when string, p pod, want [2]netip.Addr) {
		t.Helper()
		for i, six := range []bool{false, true} {
			conn, err := openDialog(p.Namespace, "udp", 0, outside.at(six, backendPort), answerTime)
			if err != nil {
				t.Fatal(err)
			}
			a, err := conn.ask()
			conn.Close()
			if err != nil || a.peer.Addr() != want[i] {
				t.Errorf("%s: the outside sees %s, %v, want %s", when, a.peer, err, want[i])
			}
		}
	}
	plain := r.add(annotated(t, "plain", nil))
	sees("masqueraded", plain, [2]netip.Addr{r.node.IPv4, r.node.IPv6})
	own := r.add(annotated(t, "own", map[string]string{"porin.dev/masquerade": "false"}))
	addrs := [2]netip.Addr{own.ipv4, own.ipv6}
	sees("annotated", own, addrs)
	if ep, err := r.api.Endpoint(t.Context(), "container-id:"+own.ID); err != nil || !ep.NoMasquerade {
		t.Errorf("endpoint %+v, %v", ep, err)
	}
	r.agent.Kill(t)
	r.agent.Start(t)
	sees("annotated, after a restart", own, addrs)
	sees("masqueraded, after a restart", plain, [2]netip.Addr{r.node.IPv4, r.node.IPv6})
	onNode(t, r.node, "flush ruleset\n", "nft", "-f", "-")
	testutil.Eventually(t, func() error {
		if text := onNode(t, r.node, "", "nft", "list", "ruleset"); !strings.Contains(text, "masquerade fully-random") {
			return fmt.Errorf("the ruleset is %q", text)
		}
		return nil
	})
	sees("annotated, after a flush", own, addrs)
	sees("masqueraded, after a flush", plain, [2]netip.Addr{r.node.IPv4, r.node.IPv6})
	r.cni.MustDel(t, own.Container)
	r.refuses(annotated(t, "odd", map[string]string{"porin.dev/masquerade": "no"}), `porin.dev/masquerade is "no"`)
	r.agrees()
}
