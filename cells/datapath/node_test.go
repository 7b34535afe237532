package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/testutil"
)

// node is a network namespace with a running datapath, and the step that makes the links for it.
type node struct {
	*testutil.Namespace
	cfg      datapath.Config
	datapath *datapath.Datapath
	step     *datapath.Step
	links    *link.Step
	mtu      int                      // of new links; 0 for the kernel's default
	kernel   func(*datapath.Datapath) // nil, or what makes each datapath take the kernel for another one
}

func newNode(t testing.TB) *node {
	t.Helper()
	return newNodeOn(t, nil)
}

// newNodeOn is for a node with another kernel.
func newNodeOn(t testing.TB, kernel func(*datapath.Datapath)) *node {
	t.Helper()
	cfg := datapath.DefaultConfig()
	cfg.BPFRoot = testutil.BPFFS(t) + "/porin"
	n := &node{Namespace: testutil.NetNS(t), cfg: cfg, kernel: kernel}
	n.start(t)
	return n
}

// start starts a datapath as an agent does that finds what the last one left.
func (n *node) start(t testing.TB) {
	t.Helper()
	if err := n.tryStart(t, func(*datapath.Datapath) {}); err != nil {
		t.Fatal(err)
	}
}

// tryStart starts a datapath after change had a look at it.
func (n *node) tryStart(t testing.TB, change func(*datapath.Datapath)) error {
	t.Helper()
	d, err := datapath.New(n.cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if n.kernel != nil {
		n.kernel(d)
	}
	change(d)
	if err := n.Do(func() error { return d.Start(context.Background()) }); err != nil {
		return err
	}
	links := link.New(nil, slog.New(slog.DiscardHandler))
	must(t, n.Do(func() error { return links.Start(context.Background()) }))
	n.datapath, n.step, n.links = d, datapath.NewStep(d.Links(), d.Maps(), d.Pins(), slog.New(slog.DiscardHandler)), links
	t.Cleanup(func() { n.stop(t) }) // twice is fine
	return nil
}

func (n *node) stop(t testing.TB) {
	t.Helper()
	if err := errors.Join(n.links.Stop(context.Background()), n.datapath.Stop(context.Background())); err != nil {
		t.Error(err)
	}
}

// pod is a container with its link.
type pod struct {
	*testutil.Namespace
	netns    *endpoint.Namespace
	endpoint endpoint.Endpoint
}

// newPod makes pod number i, which is not attached yet.
func (n *node) newPod(t testing.TB, i int) *pod {
	t.Helper()
	container := testutil.NetNS(t)
	p := &pod{Namespace: container, netns: endpointmanagertest.OpenNamespace(t, container.Path())}
	p.endpoint = n.link(t, p.netns, endpointOf(t, i))
	return p
}

// link makes the link of an endpoint, whose host end is down.
func (n *node) link(t testing.TB, netns *endpoint.Namespace, ep endpoint.Endpoint) endpoint.Endpoint {
	t.Helper()
	ep.Spec.MTU = n.mtu
	ep, err := n.links.Attach(context.Background(), ep, netns)
	must(t, err)
	return ep
}

// endpointOf is endpoint number i, all of it made up but the indexes of its link's ends.
func endpointOf(t testing.TB, i int) endpoint.Endpoint {
	t.Helper()
	return endpointAt(t, i, endpoint.Attachment{ContainerID: fmt.Sprintf("container-%d", i), IfName: "eth0"})
}

func endpointAt(t testing.TB, i int, a endpoint.Attachment) endpoint.Endpoint {
	t.Helper()
	hostMAC, containerMAC := v1.InterfaceMACs(a.ContainerID, a.IfName)
	mac := func(text string) endpoint.MAC {
		mac, err := v1.ParseMAC(text)
		must(t, err)
		return mac
	}
	return endpoint.Endpoint{
		ID:        uint16(i),
		Spec:      endpoint.Spec{Attachment: a},
		Host:      endpoint.Interface{Name: v1.HostInterfaceName(a.ContainerID, a.IfName), MAC: mac(hostMAC)},
		Container: endpoint.Interface{Name: a.IfName, MAC: mac(containerMAC)},
		Addresses: endpoint.Addresses{
			IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			IPv6: netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)}),
		},
	}
}

func (n *node) attach(t testing.TB, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := n.step.Attach(context.Background(), p.endpoint, p.netns); err != nil {
			t.Fatal(err)
		}
	}
}

// detach takes the pods out of the datapath and deletes their links.
func (n *node) detach(t testing.TB, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		must(t, n.detachOne(context.Background(), p.endpoint))
	}
}

func (n *node) detachOne(ctx context.Context, ep endpoint.Endpoint) error {
	return errors.Join(n.step.Detach(ctx, ep, endpoint.DeleteConfig{}), n.links.Detach(ctx, ep, endpoint.DeleteConfig{}))
}
