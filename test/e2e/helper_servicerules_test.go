package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// The marks of kube-proxy's rules: a packet with it is masqueraded.
const masqueradeMark = "0x4000"

// servicePort is the port of every Service at its cluster IP, for TCP and UDP.
const servicePort = 80

// service is a Service with the same backends for TCP and UDP.
type service struct {
	name      string
	clusterIP netip.Addr
	nodePort  uint16 // 0: none
	local     bool   // externalTrafficPolicy Local: connections from outside reach backends of the node only, and are not masqueraded
	affinity  bool   // sessionAffinity ClientIP
	backends  []netip.AddrPort
}

func (s service) at() netip.AddrPort { return netip.AddrPortFrom(s.clusterIP, servicePort) }

// proxy is what kube-proxy of a node knows, of one family.
type proxy struct {
	node     netip.Addr
	pods     netip.Prefix // of all nodes
	own      netip.Prefix // of the pods of this node
	services []service
}

// ownBackends are the indices of the backends on this node.
func (p proxy) ownBackends(s service) (own []int) {
	for i, backend := range s.backends {
		if p.own.Contains(backend.Addr()) || backend.Addr() == p.node {
			own = append(own, i)
		}
	}
	return own
}

// allBackends are the indices of all backends.
func allBackends(s service) (all []int) {
	for i := range s.backends {
		all = append(all, i)
	}
	return all
}

var protocols = []string{"tcp", "udp"}

// proxyMode is a form in which kube-proxy writes its rules.
type proxyMode interface {
	String() string
	// apply writes the rules of one family.
	apply(t testing.TB, node *testutil.Node, p proxy)
	// invalid counts the packets that the rules of a family have dropped as invalid.
	invalid(t testing.TB, node *testutil.Node, six bool) int
}

var proxyModes = []proxyMode{nftablesMode{}, iptablesMode{}}

// forEachProxyMode runs a test with the rules in one of the forms, and with FULL=1 in both.
func forEachProxyMode(t *testing.T, test func(*testing.T, proxyMode)) {
	testutil.Root(t)
	for _, mode := range testutil.Sample(proxyModes...) {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

// runOnNode runs a program in the node's namespace and returns its output.
func runOnNode(node *testutil.Node, input, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := node.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, stderr.String())
	}
	return stdout.String(), nil
}

// onNode is runOnNode that fails the test.
func onNode(t testing.TB, node *testutil.Node, input, program string, args ...string) string {
	t.Helper()
	testutil.NeedPrograms(t, program)
	out, err := runOnNode(node, input, program, args...)
	if err != nil {
		t.Fatalf("%v\nThe rules of kube-proxy need nftables and iptables in the kernel.\n%s", err, input)
	}
	return out
}

// packetsIn reads the counter that the expression finds.
func packetsIn(t testing.TB, counter *regexp.Regexp, text string) int {
	t.Helper()
	found := counter.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no counter in\n%s", text)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
