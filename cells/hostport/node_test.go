package hostport_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/hostport"
	"porin.dev/porin/internal/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a namespace with a step.
type node struct {
	*testutil.Namespace
	step *hostport.Step
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{Namespace: testutil.NetNS(t)}
	n.start(t)
	return n
}

// start is the next agent's.
func (n *node) start(t testing.TB) {
	t.Helper()
	step := hostport.New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, n.Do(func() error { return step.Start(t.Context()) }))
	t.Cleanup(func() { must(t, step.Stop(context.Background())) })
	n.step = step
}

func (n *node) restart(t testing.TB) {
	t.Helper()
	must(t, n.step.Stop(t.Context()))
	n.start(t)
}

// endpoint is number i of the node, with its host end, and ports such as "TCP 8080".
func (n *node) endpoint(t testing.TB, i int, ports ...endpoint.PortMapping) endpoint.Endpoint {
	t.Helper()
	ep := endpointtest.Endpoint(i)
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	ep.Addresses.IPv6 = netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
	name := ep.Spec.Attachment.HostEnd()
	link, err := n.AddVeth(testutil.Veth{Name: name, Peer: testutil.NetNS(t), PeerName: "eth0"})
	must(t, err)
	ep.Host.Name, ep.Host.Index = name, link.Attrs().Index
	ep.Spec.PortMappings, err = endpoint.EncodePortMappings(ports)
	must(t, err)
	return ep
}

func tcp(host, container uint16) endpoint.PortMapping {
	return endpoint.PortMapping{HostPort: host, ContainerPort: container, Protocol: "TCP"}
}

func (n *node) attach(t testing.TB, ep endpoint.Endpoint) {
	t.Helper()
	if _, err := n.step.Attach(t.Context(), ep, nil); err != nil {
		t.Fatal(err)
	}
}

func (n *node) detach(t testing.TB, ep endpoint.Endpoint) {
	t.Helper()
	must(t, n.step.Detach(t.Context(), ep, endpoint.DeleteConfig{}))
}

// rules writes nftables rules, as another program on the node does.
func (n *node) rules(t testing.TB, input string, program ...string) string {
	t.Helper()
	if len(program) == 0 {
		program = []string{"nft", "-f", "-"}
	}
	testutil.NeedPrograms(t, program[0])
	var out, stderr bytes.Buffer
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader([]byte(input+"\n")), &out, &stderr
	must(t, n.Do(cmd.Start))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v: %s\n%s", program, err, stderr.String(), input)
	}
	return out.String()
}

func (n *node) list(t testing.TB) string {
	t.Helper()
	return n.rules(t, "", "nft", "-y", "list", "ruleset")
}

// leads reports whether a port of the node leads to the endpoint, by the rules.
func (n *node) leads(t testing.TB, port, protocol string, ep endpoint.Endpoint) bool {
	t.Helper()
	return strings.Contains(n.list(t), fmt.Sprintf("%s . %s : %s . ", protocol, port, ep.Addresses.IPv4))
}

func (n *node) wantLeads(t testing.TB, when, port string, ep endpoint.Endpoint, want bool) {
	t.Helper()
	if n.leads(t, port, "tcp", ep) != want {
		t.Errorf("%s: port %s leads to %s: %v, want %v:\n%s", when, port, ep.Addresses.IPv4, !want, want, n.list(t))
	}
}
