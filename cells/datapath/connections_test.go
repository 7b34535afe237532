package datapath_test

import (
	"testing"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
)

// A connection has an entry at each end; those of an endpoint that has gone are removed, at the other end, too.
func TestSweepConnections(t *testing.T) {
	n := newNode(t)
	a, b, c := n.newPod(t, 1), n.newPod(t, 2), n.newPod(t, 3)
	n.attach(t, a, b, c)
	for _, to := range []*pod{b, c} {
		must(t, ping(a.Namespace, to.endpoint.Addresses.IPv4))
	}
	wantConnections(t, n, 4)
	must(t, n.datapath.SweepConnections(t.Context()))
	wantConnections(t, n, 4)
	must(t, n.step.Detach(t.Context(), b.endpoint, endpoint.DeleteConfig{}))
	must(t, n.datapath.SweepConnections(t.Context()))
	wantConnections(t, n, 2)
}

// wantConnections compares what is counted with what is there.
func wantConnections(t *testing.T, n *node, want int) {
	t.Helper()
	use, err := n.datapath.Counters().Connections()
	must(t, err)
	if int(use.Entries) != want {
		t.Errorf("%d connections are counted, want %d", use.Entries, want)
	}
	for _, m := range n.inspect(t).Maps {
		if m.Name == bpf.Connections && m.Entries != want {
			t.Errorf("%d connections are in the map, want %d", m.Entries, want)
		}
	}
}

// The room is shared among the endpoints that there are.
func TestConnectionShares(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	must(t, n.datapath.SweepConnections(t.Context()))
	var got abi.Limits
	must(t, n.pinned(t, bpf.Limits).Lookup(uint32(0), &got))
	size := n.cfg.MaxConnections
	if want := (abi.Limits{Common: size / 4 * 3, Share: size / 2}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
}
