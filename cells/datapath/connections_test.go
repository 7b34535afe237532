package datapath_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/names"
)

// A connection has an entry at each end; entries of a deleted endpoint are removed, at the other end, too.
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

// TestOpenConnectionsInUse: the pod that has opened a connection uses the address of the other end, and not the
// reverse.
func TestOpenConnectionsInUse(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	used := func(addr netip.Addr) map[uint16]bool {
		t.Helper()
		addresses := map[names.Use]bool{{Endpoint: 1, Addr: addr}: false, {Endpoint: 2, Addr: addr}: false}
		must(t, n.datapath.OpenConnections().InUse(addresses))
		return map[uint16]bool{1: addresses[names.Use{Endpoint: 1, Addr: addr}], 2: addresses[names.Use{Endpoint: 2, Addr: addr}]}
	}
	for _, addr := range []netip.Addr{b.endpoint.Addresses.IPv4, b.endpoint.Addresses.IPv6} {
		if got := used(addr); got[1] || got[2] {
			t.Errorf("before the connection: %v", got)
		}
		must(t, ping(a.Namespace, addr))
		if got := used(addr); !got[1] || got[2] {
			t.Errorf("endpoint 1 has a connection to %s: %v", addr, got)
		}
	}
	if got := used(a.endpoint.Addresses.IPv4); got[1] || got[2] {
		t.Errorf("endpoint 2 has opened nothing: %v", got)
	}
	silent := netip.MustParseAddr("192.0.2.77")
	must(t, a.Namespace.Do(func() error {
		conn, err := net.Dial("udp", netip.AddrPortFrom(silent, 9).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		return err
	}))
	wantConnections(t, n, 5)
	if got := used(silent); got[1] {
		t.Error("what nothing has answered counts as a connection of endpoint 1")
	}
	must(t, n.step.Detach(t.Context(), a.endpoint, endpoint.DeleteConfig{}))
	must(t, n.datapath.SweepConnections(t.Context()))
	if got := used(b.endpoint.Addresses.IPv4); got[1] {
		t.Error("after the deletion its connection is still there")
	}
}

// The status does not wait for a sweep, and neither does a write of an endpoint.
func TestStatusDuringSweep(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	release := n.datapath.HoldSweep()
	swept := make(chan error)
	go func() { swept <- n.datapath.SweepConnections(context.Background()) }()
	for range 1000 { // so that the sweep has begun
		if n.datapath.Status().Digest == "" {
			t.Fatal("no digest")
		}
		runtime.Gosched()
	}
	n.attach(t, a)
	release()
	must(t, <-swept)
}

// A count that is wrong is corrected by sweeps, and that is counted, too.
func TestSweepCorrectsCount(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	traffic := startPingPong(t, a, b)
	traffic.goOn(t)
	for i, by := range []int32{100, -100} {
		for _, id := range []uint32{abi.NoEndpoint, uint32(a.endpoint.ID)} {
			var usage abi.Usage
			must(t, n.pinned(t, bpf.Usage).Lookup(id, &usage))
			usage.Inserted += uint32(by)
			must(t, n.pinned(t, bpf.Usage).Put(id, usage))
		}
		for range 3 {
			must(t, n.datapath.SweepConnections(t.Context()))
			traffic.goOn(t)
		}
		use, err := n.datapath.Counters().Connections()
		must(t, err)
		if want := uint64(2 * (i + 1)); use.Corrected != want {
			t.Errorf("%d counts were corrected, want %d", use.Corrected, want)
		}
		wantConnections(t, n, 2)
	}
	traffic.stop()
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
	if want := (abi.Limits{Common: size / 4 * 3, Share: size / 8}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
}

// generation is the generation of an endpoint's number.
func (n *node) generation(t *testing.T, id uint16) uint32 {
	t.Helper()
	var slot abi.Slot
	must(t, n.pinned(t, bpf.Slots).Lookup(uint32(id), &slot))
	return slot.Generation
}

// The open connections of a pod end when its entries are pruned.
func TestPruneEndsConnections(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	must(t, ping(b.Namespace, a.endpoint.Addresses.IPv4))
	before := n.generation(t, b.endpoint.ID)
	_, err := n.step.Prune(t.Context(), endpoints(a))
	must(t, err)
	if after := n.generation(t, b.endpoint.ID); after == before {
		t.Errorf("generation %d, as before", after)
	}
	must(t, n.datapath.SweepConnections(t.Context()))
	wantConnections(t, n, 0)
}

// An endpoint that gets the link index of another one ends the connections of that, and so does a deletion that comes
// late.
func TestIndexReusedEndsConnections(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	before := n.generation(t, b.endpoint.ID)
	successor := datapath.Entry{ID: 5, Link: b.index(), PodMAC: b.endpoint.Container.MAC, HostMAC: b.endpoint.Host.MAC}
	successor.Addresses.IPv4 = netip.MustParseAddr("10.0.0.55")
	must(t, n.datapath.Maps().Update(successor))
	came := n.generation(t, b.endpoint.ID)
	must(t, n.datapath.Maps().Delete(datapath.Entry{ID: b.endpoint.ID, Link: b.index()}))
	if late := n.generation(t, b.endpoint.ID); came == before || late == came {
		t.Errorf("generations %d, %d when the successor came, %d after the deletion", before, came, late)
	}
}

// TestResizeConnectionsInterrupted: at whatever operation a start ends that replaces the map of connections, the next
// one counts its entries.
func TestResizeConnectionsInterrupted(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	sizes := []uint32{1024, 2048, 4096}
	for points, more := 1, true; more; points++ {
		n.takeOver(t, a, b)
		must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
		n.stop(t)
		n.cfg.MaxConnections = sizes[points%len(sizes)]
		d, err := datapath.New(n.cfg, slog.New(slog.DiscardHandler))
		must(t, err)
		err = n.Do(func() error { return d.Start(&interrupted{context.Background(), points}) })
		if more = err != nil; more && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		must(t, d.Stop(t.Context()))
		if points%2 == 0 {
			n.cfg.MaxConnections = sizes[(points+2)%len(sizes)] // back to what it was
		}
		n.start(t)
		use, err := n.datapath.Counters().Connections()
		must(t, err)
		for _, m := range n.inspect(t).Maps {
			if m.Name == bpf.Connections && m.Entries != int(use.Entries) {
				t.Errorf("ended after %d operations: %d entries are counted, %d are in the map", points, use.Entries, m.Entries)
			}
		}
	}
}
