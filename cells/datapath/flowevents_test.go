package datapath_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/conntrack"
)

// readFlows returns what there is.
func (n *node) readFlows(t testing.TB) (all []abi.FlowEvent) {
	t.Helper()
	lost, err := n.datapath.FlowEvents().Read(func(e *abi.FlowEvent) bool { all = append(all, *e); return true })
	if err != nil || lost != 0 {
		t.Errorf("%d events lost, %v", lost, err)
	}
	return all
}

// TestFlowEvents reads what a ping between two pods tells, in two parts, and again with another agent.
func TestFlowEvents(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	pings := func() {
		for range 2 {
			if err := ping(a.Namespace, b.endpoint.Addresses.IPv4); err != nil {
				t.Fatal(err)
			}
		}
	}
	pings()
	var first []abi.FlowEvent
	if _, err := n.datapath.FlowEvents().Read(func(e *abi.FlowEvent) bool { first = append(first, *e); return false }); err != nil || len(first) != 1 {
		t.Errorf("%d events, %v, want one and no more", len(first), err)
	}
	pingsIn := func(events []abi.FlowEvent) (count int) {
		for _, e := range events {
			if e.Protocol == unix.IPPROTO_ICMP && e.Source.IP() == a.endpoint.Addresses.IPv4 && e.Destination.IP() == b.endpoint.Addresses.IPv4 && e.Id == a.endpoint.ID && e.Time > 0 {
				count++
			}
		}
		return count
	}
	if got := pingsIn(append(first, n.readFlows(t)...)); got != 2 {
		t.Errorf("%d pings were told, want 2", got)
	}
	n.stop(t)
	pings()
	if _, err := n.datapath.FlowEvents().Read(nil); !errors.Is(err, datapath.ErrNotStarted) {
		t.Errorf("after the end: %v", err)
	}
	n.start(t)
	if got := pingsIn(n.readFlows(t)); got != 2 {
		t.Errorf("%d pings were told, want the 2 while no agent ran", got)
	}
}

// TestTranslations asks a namespace where nothing is tracked.
func TestTranslations(t *testing.T) {
	n := newNode(t)
	packet := conntrack.Tuple{Source: netip.MustParseAddrPort("10.1.0.2:40000"), Destination: netip.MustParseAddrPort("10.96.0.1:80")}
	for range 2 {
		if _, found, err := n.datapath.Translations().Translate(unix.IPPROTO_TCP, packet, false); found || err != nil {
			t.Errorf("found %v, %v", found, err)
		}
	}
	n.stop(t)
	if _, _, err := n.datapath.Translations().Translate(unix.IPPROTO_TCP, packet, false); !errors.Is(err, datapath.ErrNotStarted) {
		t.Errorf("after the end: %v", err)
	}
}

// BenchmarkReadNothing is what an idle agent does ten times in a second.
func BenchmarkReadNothing(b *testing.B) {
	n := newNode(b)
	source := n.datapath.FlowEvents()
	for b.Loop() {
		if _, err := source.Read(func(*abi.FlowEvent) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)*float64(10)/float64(time.Second)*100, "%CPU-idle")
}
