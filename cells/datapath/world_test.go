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
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/testutil"
)

// world is a node to test the step on: the double, or the kernel.
type world interface {
	// addLink makes the link of an endpoint, whose host end is down, and returns the index of that end.
	addLink(t *testing.T, ep endpointmanager.Endpoint) int
	removeLink(t *testing.T, ep endpointmanager.Endpoint)
	// addOther makes an interface that is nobody's host end.
	addOther(t *testing.T, name string) int
	setDown(t *testing.T, ep endpointmanager.Endpoint)
	state(t *testing.T) datapathtest.State
	step() *datapath.Step
	links() datapath.Links
	maps() datapath.Maps
}

// inBothWorlds runs a test on the double and, as root, on the kernel.
func inBothWorlds(t *testing.T, test func(t *testing.T, w world)) {
	t.Run("double", func(t *testing.T) { test(t, &double{kernel: &datapathtest.Kernel{}}) })
	t.Run("kernel", func(t *testing.T) { test(t, &real{node: newNode(t)}) })
}

type double struct{ kernel *datapathtest.Kernel }

func (d *double) step() *datapath.Step {
	return datapath.NewStep(d.kernel, d.kernel, d.kernel, slog.New(slog.DiscardHandler))
}
func (d *double) links() datapath.Links               { return d.kernel }
func (d *double) maps() datapath.Maps                 { return d.kernel }
func (d *double) state(*testing.T) datapathtest.State { return d.kernel.State() }

func (d *double) addLink(_ *testing.T, ep endpointmanager.Endpoint) int {
	return d.kernel.AddLink(netlink.LinkAttrs{Index: 100 + int(ep.ID), Name: ep.Host.Name, HardwareAddr: ep.Host.MAC[:]})
}

func (d *double) removeLink(_ *testing.T, ep endpointmanager.Endpoint) {
	d.kernel.RemoveLink(ep.Host.Index)
}

func (d *double) addOther(_ *testing.T, name string) int {
	index := 2 + len(name) // different for different names here
	return d.kernel.AddLink(netlink.LinkAttrs{Index: index, Name: name, Flags: net.FlagUp})
}

func (d *double) setDown(_ *testing.T, ep endpointmanager.Endpoint) {
	d.kernel.AddLink(netlink.LinkAttrs{Index: ep.Host.Index, Name: ep.Host.Name, HardwareAddr: ep.Host.MAC[:]})
}

type real struct{ node *node }

func (r *real) step() *datapath.Step  { return r.node.step }
func (r *real) links() datapath.Links { return r.node.datapath.Links() }
func (r *real) maps() datapath.Maps   { return r.node.datapath.Maps() }

func (r *real) addLink(t *testing.T, ep endpointmanager.Endpoint) int {
	return r.node.link(t, endpointmanagertest.OpenNamespace(t, testutil.NetNS(t).Path()), ep).Host.Index
}

func (r *real) removeLink(t *testing.T, ep endpointmanager.Endpoint) {
	must(t, r.node.links.Remove(t.Context(), ep.Host.Index))
}

func (r *real) addOther(t *testing.T, name string) int {
	container := testutil.NetNS(t)
	link, err := r.node.AddVeth(testutil.Veth{Name: name, Peer: container, PeerName: "eth0"})
	must(t, err)
	must(t, container.Netlink(t).LinkSetUp(testutil.LinkAt(link.Attrs().ParentIndex)))
	return link.Attrs().Index
}

func (r *real) setDown(t *testing.T, ep endpointmanager.Endpoint) {
	must(t, r.node.Netlink(t).LinkSetDown(testutil.LinkAt(ep.Host.Index)))
}

func (r *real) state(t *testing.T) datapathtest.State {
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
		Endpoints: entries[bpf.Traffic] - 1, // less the node's own
		Wired:     r.node.filters(t) / 2,
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

// endpoint is endpoint number i with its link.
func endpoint(t *testing.T, w world, i int) endpointmanager.Endpoint {
	t.Helper()
	ep := endpointOf(t, i)
	ep.Host.Index = w.addLink(t, ep)
	return ep
}

func attach(t *testing.T, w world, endpoints ...endpointmanager.Endpoint) {
	t.Helper()
	for _, ep := range endpoints {
		if _, err := w.step().Attach(context.Background(), ep, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func wantState(t *testing.T, w world, want datapathtest.State) {
	t.Helper()
	if got := w.state(t); got != want {
		t.Errorf("state = %+v, want %+v", got, want)
	}
}

// attached is the state with n endpoints of both families.
func attached(n int) datapathtest.State {
	return datapathtest.State{Links: n, Addresses: 2 * n, Endpoints: n, Wired: n}
}
