package bandwidth_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/bandwidth"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a network namespace with the steps link and bandwidth.
type node struct {
	*testutil.Namespace
	links *link.Step
	step  *bandwidth.Step
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{Namespace: testutil.NetNS(t), links: link.New(nil, slog.New(slog.DiscardHandler))}
	must(t, n.Do(func() error { return n.links.Start(context.Background()) }))
	n.start(t)
	t.Cleanup(func() {
		must(t, n.step.Stop(context.Background()))
		must(t, n.links.Stop(context.Background()))
	})
	return n
}

func (n *node) start(t testing.TB) {
	t.Helper()
	n.step = bandwidth.New(n.links, slog.New(slog.DiscardHandler))
	must(t, n.Do(func() error { return n.step.Start(context.Background()) }))
}

// device is the name of the device of an endpoint.
func device(ep endpoint.Endpoint) string {
	return "pbw" + strings.TrimPrefix(ep.Spec.Attachment.HostEnd(), "por")
}

// linked gives the endpoint its link, and limits.
func (n *node) linked(t testing.TB, ep endpoint.Endpoint, limits endpoint.Bandwidth) endpoint.Endpoint {
	t.Helper()
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(ep.ID)})
	ep.Spec.Bandwidth = limits
	ep, err := n.links.Attach(t.Context(), ep, endpointmanagertest.OpenNamespace(t, testutil.NetNS(t).Path()))
	must(t, err)
	return ep
}

func (n *node) hasBucket(t testing.TB, link int) bool {
	t.Helper()
	qdiscs, err := n.Qdiscs(link)
	must(t, err)
	return slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "tbf" })
}

func TestStepConformance(t *testing.T) {
	endpointtest.TestStep(t, func(t *testing.T) endpointtest.Subject {
		n := newNode(t)
		return endpointtest.Subject{
			Step: n.step,
			Has: func(t testing.TB, ep endpoint.Endpoint) bool {
				return slices.Contains(n.LinkNames(t), device(ep))
			},
			Prepare: func(t testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace) {
				return n.linked(t, ep, endpoint.Bandwidth{IngressRate: 1e7, EgressRate: 1e7}), nil
			},
			Restart: func(t testing.TB) endpoint.Step {
				must(t, n.step.Stop(context.Background()))
				n.start(t)
				return n.step
			},
		}
	})
}

// TestUnlimited: an endpoint without limits needs nothing, not even a step that is started.
func TestUnlimited(t *testing.T) {
	testutil.Root(t)
	step, ep := bandwidth.New(nil, slog.New(slog.DiscardHandler)), endpointtest.Endpoint(1)
	if _, err := step.Attach(t.Context(), ep, nil); err != nil {
		t.Error(err)
	}
	if replaced, err := step.Restore(t.Context(), ep); len(replaced) > 0 || err != nil {
		t.Errorf("replaced %v, error %v", replaced, err)
	}
	if err := step.Detach(t.Context(), ep, endpoint.DeleteConfig{}); err != nil {
		t.Error(err)
	}
}

func TestOneDirection(t *testing.T) {
	n := newNode(t)
	for i, limits := range []endpoint.Bandwidth{{IngressRate: 1e7}, {EgressRate: 5e9}} {
		ep := n.linked(t, endpointtest.Endpoint(i+1), limits)
		ep, err := n.step.Attach(t.Context(), ep, nil)
		must(t, err)
		if got := n.hasBucket(t, ep.Host.Index); got != (limits.IngressRate != 0) {
			t.Errorf("%+v: the host end has a token bucket: %v", limits, got)
		}
		if got := slices.Contains(n.LinkNames(t), device(ep)); got != (limits.EgressRate != 0) {
			t.Errorf("%+v: there is a device: %v", limits, got)
		}
		if replaced, err := n.step.Restore(t.Context(), ep); len(replaced) > 0 || err != nil {
			t.Errorf("%+v: a Restore after Attach replaced %v, error %v", limits, replaced, err)
		}
	}
}

// TestForeignQdisc: another program's root qdisc is replaced.
func TestForeignQdisc(t *testing.T) {
	n := newNode(t)
	ep := n.linked(t, endpointtest.Endpoint(1), endpoint.Bandwidth{IngressRate: 1e7, EgressRate: 1e7})
	ep, err := n.step.Attach(t.Context(), ep, nil)
	must(t, err)
	must(t, n.Netlink(t).QdiscReplace(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: ep.Host.Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT})))
	replaced, err := n.step.Restore(t.Context(), ep)
	must(t, err)
	if len(replaced) != 1 || !n.hasBucket(t, ep.Host.Index) {
		t.Errorf("replaced %v, the host end has a token bucket: %v", replaced, n.hasBucket(t, ep.Host.Index))
	}
}

// TestForeignDevice: a link of another kind with the name of an endpoint's device is an error, and stays.
func TestForeignDevice(t *testing.T) {
	n := newNode(t)
	ep := n.linked(t, endpointtest.Endpoint(1), endpoint.Bandwidth{EgressRate: 1e7})
	must(t, n.Netlink(t).LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device(ep)}, PeerName: "peer"}))
	if _, err := n.step.Attach(t.Context(), ep, nil); err == nil || !strings.Contains(err.Error(), device(ep)) {
		t.Errorf("error %v, want one that names the link", err)
	}
	must(t, n.step.Detach(t.Context(), ep, endpoint.DeleteConfig{}))
	if !slices.Contains(n.LinkNames(t), device(ep)) {
		t.Error("the link of somebody else was removed")
	}
}

// TestFindAndPrune: a start without records finds an endpoint's egress limit, and removes devices without an owner.
func TestFindAndPrune(t *testing.T) {
	n := newNode(t)
	ep := n.linked(t, endpointtest.Endpoint(1), endpoint.Bandwidth{EgressRate: 1e7})
	gone := n.linked(t, endpointtest.Endpoint(2), endpoint.Bandwidth{EgressRate: 1e7})
	for _, one := range []endpoint.Endpoint{ep, gone} {
		_, err := n.step.Attach(t.Context(), one, nil)
		must(t, err)
	}
	must(t, n.Netlink(t).LinkDel(nl.LinkAt(gone.Host.Index)))
	found, err := n.links.Find(t.Context(), nil)
	must(t, err)
	found, err = n.step.Find(t.Context(), found)
	must(t, err)
	if len(found) != 1 || found[0].Spec.Bandwidth.EgressRate < 0.99e7 || found[0].Spec.Bandwidth.EgressRate > 1.01e7 {
		t.Errorf("found %+v", found)
	}
	removed, err := n.step.Prune(t.Context(), found)
	must(t, err)
	if len(removed) != 1 || !strings.Contains(removed[0], device(gone)) || !slices.Contains(n.LinkNames(t), device(ep)) {
		t.Errorf("removed %v, left %v", removed, n.LinkNames(t))
	}
	must(t, n.step.Detach(t.Context(), found[0], endpoint.DeleteConfig{}))
	if slices.Contains(n.LinkNames(t), device(ep)) {
		t.Error("the Detach of what was found leaves its device")
	}
}
