package datapath_test

import (
	"context"
	"log/slog"
	"testing"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// world is a node to test the step on: the double, or the kernel.
type world interface {
	// addLink makes the host end of an endpoint, up, and returns its index.
	addLink(t *testing.T, ep endpointmanager.Endpoint) int
	// addOther makes an interface that is nobody's host end.
	addOther(t *testing.T, name string) int
	setDown(t *testing.T, ep endpointmanager.Endpoint)
	state(t *testing.T) datapathtest.State
	step() *datapath.Step
	links() datapath.Links
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
func (d *double) state(*testing.T) datapathtest.State { return d.kernel.State() }

func (d *double) addLink(_ *testing.T, ep endpointmanager.Endpoint) int {
	link := datapath.Link{Index: 100 + int(ep.ID), Name: ep.Spec.Host.Name, Kind: "veth", MAC: ep.Spec.Host.MAC, Up: true}
	d.kernel.AddLink(link)
	return link.Index
}

func (d *double) addOther(_ *testing.T, name string) int {
	index := 2 + len(name) // different for different names here
	d.kernel.AddLink(datapath.Link{Index: index, Name: name, Kind: "veth", Up: true})
	return index
}

func (d *double) setDown(_ *testing.T, ep endpointmanager.Endpoint) {
	d.kernel.AddLink(datapath.Link{Index: ep.Spec.Host.Index, Name: ep.Spec.Host.Name, Kind: "veth", MAC: ep.Spec.Host.MAC})
}

type real struct{ node *node }

func (r *real) step() *datapath.Step  { return r.node.step }
func (r *real) links() datapath.Links { return r.node.datapath.Links() }

func (r *real) addLink(t *testing.T, ep endpointmanager.Endpoint) int {
	container := testutil.NetNS(t)
	link := r.node.link(t, container, ep)
	if err := container.Conn(t).Do(rtnl.LinkUp(link.Peer)); err != nil {
		t.Fatal(err)
	}
	return link.Index
}

func (r *real) addOther(t *testing.T, name string) int {
	ep := endpointOf(t, 1000+len(name))
	ep.Spec.Host.Name = name
	return r.addLink(t, ep)
}

func (r *real) setDown(t *testing.T, ep endpointmanager.Endpoint) {
	if err := r.node.conn.Do(rtnl.LinkDown(ep.Spec.Host.Index)); err != nil {
		t.Fatal(err)
	}
}

func (r *real) state(t *testing.T) datapathtest.State {
	t.Helper()
	found := r.node.inspect(t)
	entries := map[string]int{}
	for _, m := range found.Maps {
		entries[m.Name] = m.Entries
	}
	return datapathtest.State{
		Links: entries[bpf.Links], Addresses: entries[bpf.Endpoints],
		Endpoints: entries[bpf.Traffic] - 1, // less the node's own
		Wired:     len(found.Attachments) / 2,
	}
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
	ep.Spec.Host.Index = w.addLink(t, ep)
	return ep
}

func attach(t *testing.T, w world, endpoints ...endpointmanager.Endpoint) {
	t.Helper()
	for _, ep := range endpoints {
		if _, err := w.step().Attach(context.Background(), ep); err != nil {
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
