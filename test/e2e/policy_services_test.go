package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// deniedTime is how long a test waits for an answer that must not come.
const deniedTime = 700 * time.Millisecond

// policyCase is a client that reaches a server, or does not.
type policyCase struct {
	name    string
	from    party
	to      netip.AddrPort
	allowed bool
}

// label gives the first node's pods the labels app=a, app=b and app=c.
func (n *serviceNodes) label() {
	n.Helper()
	for _, name := range []string{"a", "b", "c"} {
		n.one.setLabel("demo", name, name)
	}
}

func (n *serviceNodes) policy(spec string) {
	n.Helper()
	manifest := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: test, namespace: demo}\nspec: " + spec + "\n"
	if _, err := n.one.api.PutPolicies(n.Context(), []byte(manifest)); err != nil {
		n.Fatal(err)
	}
}

func (n *serviceNodes) noPolicy() {
	n.Helper()
	if err := n.one.api.DeletePolicy(n.Context(), "NetworkPolicy", "demo", "test"); err != nil {
		n.Fatal(err)
	}
}

// reachWithin asks a server by each protocol.
func reachWithin(from party, protocol string, to netip.AddrPort, within time.Duration) error {
	conn, err := openDialog(from.Namespace, protocol, 0, to, within)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.askWithin("policy", within)
	return err
}

func checkCases(t *testing.T, when string, cases []policyCase) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range cases {
		for _, protocol := range protocols {
			all.Go(func() {
				within := deniedTime
				if c.allowed {
					within = answerTime
				}
				if err := reachWithin(c.from, protocol, c.to, within); (err == nil) != c.allowed {
					t.Errorf("%s: %s by %s: error %v, allowed %v", when, c.name, protocol, err, c.allowed)
				}
			})
		}
	}
	all.Wait()
}

// TestPolicyServices restricts pods that use Services: what counts are the real ends of a connection, whatever the node
// translates.
func TestPolicyServices(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		n.forEachFamily(func(t *testing.T, six bool) {
			n.policy("{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: b}}}], ports: [{port: 8080}, {port: 8080, protocol: UDP}]}]}")
			checkCases(t, "egress", n.egressCases(six))
			n.policy("{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 8080}, {port: 8080, protocol: UDP}]}]}")
			checkCases(t, "ingress", n.ingressCases(six))
			n.noPolicy()
			cases := append(n.egressCases(six), n.ingressCases(six)...)
			for i := range cases {
				cases[i].allowed = true
			}
			checkCases(t, "without policy", cases)
		})
		n.nothingDropped("policy-egress", "policy-ingress")
	})
}

// egressCases: a may reach b alone.
func (n *serviceNodes) egressCases(six bool) []policyCase {
	return []policyCase{
		{"a to b", n.a, n.b.at(six, backendPort), true},
		{"a to b by a Service", n.a, n.at(local, six), true},
		{"a to b by a node port", n.a, n.nodePort(local, n.node1, six), true},
		{"a to c", n.a, n.c.at(six, backendPort), false},
		{"a to the other node's pod", n.a, n.d.at(six, backendPort), false},
		{"a to the other node's pod by a Service", n.a, n.at(remote, six), false},
		{"a to the other node's pod by a node port", n.a, n.nodePort(remote, n.node1, six), false},
		{"a to its node", n.a, n.node1.at(six, backendPort), false},
		{"a to its node by a Service", n.a, n.at(host, six), false},
		{"a to b by the other node's port", n.a, n.nodePort(local, n.node2, six), false},
		{"the other node's pod to a", n.d, n.a.at(six, backendPort), true},
		{"c to a", n.c, n.a.at(six, backendPort), true},
		{"the node to a", n.node1, n.a.at(six, backendPort), true},
		{"b to the other node's pod by a Service", n.b, n.at(remote, six), true},
	}
}

// ingressCases: only a and the node may reach b.
func (n *serviceNodes) ingressCases(six bool) []policyCase {
	return []policyCase{
		{"a to b", n.a, n.b.at(six, backendPort), true},
		{"a to b by a Service", n.a, n.at(local, six), true},
		{"a to b by a node port", n.a, n.nodePort(local, n.node1, six), true},
		{"b to itself by a Service", n.b, n.at(local, six), true},
		{"the node to b", n.node1, n.b.at(six, backendPort), true},
		{"the node to b by a Service", n.node1, n.at(local, six), true},
		{"c to b", n.c, n.b.at(six, backendPort), false},
		{"c to b by a Service", n.c, n.at(local, six), false},
		{"c to b by a node port", n.c, n.nodePort(local, n.node1, six), false},
		{"the other node's pod to b", n.d, n.b.at(six, backendPort), false},
		{"the other node's pod to b by a Service", n.d, n.at(local, six), false},
		{"the other node to b", n.node2, n.b.at(six, backendPort), false},
		{"outside to b by a node port", n.outside, n.nodePort(local, n.node1, six), false},
		{"b to c", n.b, n.c.at(six, backendPort), true},
		{"b to the other node's pod by a Service", n.b, n.at(remote, six), true},
	}
}

// TestPolicyRevokedThroughService takes away the right of connections that are open, direct ones and those by a
// Service, and gives it back.
func TestPolicyRevokedThroughService(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, six := range []bool{false, true} {
		targets := map[string]netip.AddrPort{
			"direct": n.b.at(six, backendPort), "by a Service": n.at(local, six), "to the other node": n.at(remote, six), "to the node": n.at(host, six),
		}
		open := map[string]*dialog{}
		for name, to := range targets {
			for _, protocol := range protocols {
				open[name+" "+protocol] = n.mustConverse(t, protocol, to)
			}
		}
		n.policy("{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}")
		var all sync.WaitGroup
		for name, conn := range open {
			all.Go(func() {
				if _, err := conn.askWithin("revoked", deniedTime); err == nil {
					t.Errorf("%s: it goes on without the right", name)
				}
			})
		}
		all.Wait()
		n.noPolicy()
		for name, to := range targets {
			if err := errors.Join(reachWithin(n.a, "tcp", to, answerTime), reachWithin(n.a, "udp", to, answerTime)); err != nil {
				t.Errorf("%s, with the right again: %v", name, err)
			}
		}
		for _, conn := range open {
			conn.Close()
		}
	}
}

// TestPolicyOutlivesTheAgent kills the agent: denied traffic stays denied, and allowed traffic continues, also while
// the next agent starts.
func TestPolicyOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.policy("{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: b}}}]}]}")
	stop := make(chan struct{})
	var running sync.WaitGroup
	var mu sync.Mutex
	var faults []string
	repeat := func(c policyCase, protocol string, within time.Duration) {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := reachWithin(c.from, protocol, c.to, within); (err == nil) != c.allowed {
					mu.Lock()
					faults = append(faults, fmt.Sprintf("%s by %s: %v", c.name, protocol, err))
					mu.Unlock()
					return
				}
			}
		})
	}
	for _, c := range n.egressCases(false) {
		if c.from.name != "a" {
			continue
		}
		for _, protocol := range protocols {
			switch {
			case !c.allowed:
				repeat(c, protocol, deniedTime/3)
			case c.to != n.b.at(false, backendPort): // which might have the ports of one by a Service, and be refused for that
				repeat(c, protocol, answerTime)
			}
		}
	}
	for range 3 {
		n.one.agent.Kill(t)
		n.one.agent.Start(t)
	}
	n.one.agent.Stop(t)
	n.one.agent.Start(t)
	close(stop)
	running.Wait()
	if len(faults) > 0 {
		t.Errorf("while the agent was killed and started:\n%s", strings.Join(faults, "\n"))
	}
}
