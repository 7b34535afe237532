package link_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a network namespace with the started step.
type node struct {
	*testutil.Namespace
	step *link.Step
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{Namespace: testutil.NetNS(t), step: link.New(nil, slog.New(slog.NewTextHandler(t.Output(), nil)))}
	must(t, n.Do(func() error { return n.step.Start(context.Background()) }))
	t.Cleanup(func() { must(t, n.step.Stop(context.Background())) }) // twice is fine
	return n
}

// container is a container's namespace, with the descriptor that a step is given.
type container struct {
	*testutil.Namespace
	netns *endpoint.Namespace
}

func newContainer(t testing.TB) *container {
	t.Helper()
	ns := testutil.NetNS(t)
	return &container{ns, endpointmanagertest.OpenNamespace(t, ns.Path())}
}

// endpointOf is what the step is given of the container's interface: its number i is in its addresses.
func endpointOf(ifname string, i byte) endpoint.Endpoint {
	return endpoint.Endpoint{
		ID:   uint16(i),
		Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: ifname}, Began: 12345},
		Addresses: endpoint.Addresses{
			IPv4: netip.AddrFrom4([4]byte{10, 0, 0, i}), IPv6: netip.AddrFrom16([16]byte{0xfd, 15: i}),
		},
	}
}

func (n *node) attach(t testing.TB, c *container, ep endpoint.Endpoint) endpoint.Endpoint {
	t.Helper()
	ep, err := n.step.Attach(t.Context(), ep, c.netns)
	must(t, err)
	return ep
}

func (n *node) detach(t testing.TB, ep endpoint.Endpoint) {
	t.Helper()
	must(t, n.step.Detach(context.Background(), ep, endpoint.DeleteConfig{}))
}

// wantLinks compares the names of the interfaces other than lo.
func wantLinks(t testing.TB, ns *testutil.Namespace, want ...string) {
	t.Helper()
	names := map[string]bool{}
	for _, name := range ns.LinkNames(t) {
		names[name] = name != "lo"
	}
	for _, name := range want {
		if !names[name] {
			t.Errorf("interface %s is missing", name)
		}
		names[name] = false
	}
	for name, unexpected := range names {
		if unexpected {
			t.Errorf("interface %s is there", name)
		}
	}
}

// addVeth makes a pair that is not the step's, and returns the index of the end in near.
func addVeth(t testing.TB, near *testutil.Namespace, name string, far *testutil.Namespace, peer string) int {
	t.Helper()
	l, err := near.AddVeth(testutil.Veth{Name: name, Peer: far, PeerName: peer})
	must(t, err)
	return l.Attrs().Index
}
