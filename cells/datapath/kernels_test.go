package datapath_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/testutil"
)

// testKernel is a node to test the step on: the fake, or the kernel.
type testKernel interface {
	// addLink makes the link of an endpoint, whose host end is down, and returns the index of that end.
	addLink(t testing.TB, ep endpoint.Endpoint) int
	removeLink(t *testing.T, ep endpoint.Endpoint)
	// addOther makes an interface that is no host end.
	addOther(t *testing.T, name string) int
	setDown(t *testing.T, ep endpoint.Endpoint)
	state(t *testing.T) datapathtest.State
	step() *datapath.Step
	links() datapath.Links
	maps() datapath.Maps
}

// onBothKernels runs a test on the fake and, as root, on the kernel.
func onBothKernels(t *testing.T, test func(t *testing.T, w testKernel)) {
	t.Run("fake", func(t *testing.T) { test(t, &fakeKernel{kernel: &datapathtest.Kernel{}}) })
	t.Run("kernel", func(t *testing.T) { test(t, &realKernel{node: newNode(t)}) })
}

type fakeKernel struct{ kernel *datapathtest.Kernel }

func (d *fakeKernel) step() *datapath.Step {
	return datapath.NewStep(d.kernel.Links(), d.kernel.Maps(), d.kernel, slog.New(slog.DiscardHandler))
}
func (d *fakeKernel) links() datapath.Links               { return d.kernel.Links() }
func (d *fakeKernel) maps() datapath.Maps                 { return d.kernel.Maps() }
func (d *fakeKernel) state(*testing.T) datapathtest.State { return d.kernel.State() }

func (d *fakeKernel) addLink(_ testing.TB, ep endpoint.Endpoint) int {
	return d.kernel.AddLink(netlink.LinkAttrs{Index: 100 + int(ep.ID), Name: ep.Host.Name, HardwareAddr: ep.Host.MAC[:]})
}

func (d *fakeKernel) removeLink(_ *testing.T, ep endpoint.Endpoint) {
	d.kernel.RemoveLink(ep.Host.Index)
}

func (d *fakeKernel) addOther(_ *testing.T, name string) int {
	index := 2 + len(name) // different for different names here
	return d.kernel.AddLink(netlink.LinkAttrs{Index: index, Name: name, Flags: net.FlagUp})
}

func (d *fakeKernel) setDown(_ *testing.T, ep endpoint.Endpoint) {
	d.kernel.AddLink(netlink.LinkAttrs{Index: ep.Host.Index, Name: ep.Host.Name, HardwareAddr: ep.Host.MAC[:]})
}

type realKernel struct{ node *node }

func (r *realKernel) step() *datapath.Step  { return r.node.step }
func (r *realKernel) links() datapath.Links { return r.node.datapath.Links() }
func (r *realKernel) maps() datapath.Maps   { return r.node.datapath.Maps() }

func (r *realKernel) addLink(t testing.TB, ep endpoint.Endpoint) int {
	return r.node.link(t, endpointmanagertest.OpenNamespace(t, testutil.NetNS(t).Path()), ep).Host.Index
}

func (r *realKernel) removeLink(t *testing.T, ep endpoint.Endpoint) {
	must(t, r.node.links.Remove(t.Context(), ep.Host.Index))
}

func (r *realKernel) addOther(t *testing.T, name string) int {
	container := testutil.NetNS(t)
	link, err := r.node.AddVeth(testutil.Veth{Name: name, Peer: container, PeerName: "eth0"})
	must(t, err)
	must(t, container.Netlink(t).LinkSetUp(testutil.LinkAt(link.Attrs().ParentIndex)))
	return link.Attrs().Index
}

func (r *realKernel) setDown(t *testing.T, ep endpoint.Endpoint) {
	must(t, r.node.Netlink(t).LinkSetDown(testutil.LinkAt(ep.Host.Index)))
}

func (r *realKernel) state(t *testing.T) datapathtest.State {
	t.Helper()
	found := r.node.inspect(t)
	if seen := r.node.filters(t); len(found.Attachments) != seen {
		t.Errorf("Inspect finds %d filters at links, and there are %d", len(found.Attachments), seen)
	}
	entries := map[string]int{}
	for _, m := range found.Maps {
		entries[m.Name] = m.Entries
	}
	return datapathtest.State{
		Links: entries[bpf.Links], Addresses: entries[bpf.Endpoints],
		Endpoints: entries[bpf.Drops] - 1, // less the node's own
		Attached:  r.node.filters(t) / 2,
	}
}

// filters counts the filters of all links of the node.
func (n *node) filters(t *testing.T) (count int) {
	t.Helper()
	links, err := n.Links()
	must(t, err)
	for _, link := range links {
		for _, side := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := n.Filters(link.Attrs().Index, side)
			must(t, err)
			count += len(filters)
		}
	}
	return count
}

func (n *node) inspect(t testing.TB) (found datapath.Inspection) {
	t.Helper()
	err := n.Do(func() (err error) {
		found, err = datapath.Inspect(n.cfg.BPFRoot)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// newEndpoint returns endpoint number i with its link.
func newEndpoint(t *testing.T, w testKernel, i int) endpoint.Endpoint {
	t.Helper()
	ep := endpointOf(t, i)
	ep.Host.Index = w.addLink(t, ep)
	return ep
}

func attach(t *testing.T, w testKernel, endpoints ...endpoint.Endpoint) {
	t.Helper()
	for _, ep := range endpoints {
		if _, err := w.step().Attach(context.Background(), ep, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func wantState(t *testing.T, w testKernel, want datapathtest.State) {
	t.Helper()
	if got := w.state(t); got != want {
		t.Errorf("state = %+v, want %+v", got, want)
	}
}

// attached is the state with n endpoints of both families.
func attached(n int) datapathtest.State {
	return datapathtest.State{Links: n, Addresses: 2 * n, Endpoints: n, Attached: n}
}
