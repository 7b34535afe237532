package bpf_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"porin.dev/porin/bpf/abi"
)

// events reads what the programs have told since the last time.
func (f *fixture) events(t testing.TB) (all []abi.FlowEvent) {
	t.Helper()
	r, err := ringbuf.NewReader(f.objects.FlowEvents)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0)) // what there is
	for {
		record, err := r.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var e abi.FlowEvent
		if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// TestFlowEvents has the programs tell of what opens a connection and of what is dropped, and of nothing else.
func TestFlowEvents(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "from", fromClient)
	p.events(t)
	wantVerdict(t, "allowed", p.fromClient(t, syn), deliver)
	wantVerdict(t, "answer", p.fromServer(t, synACK), deliver)
	wantVerdict(t, "data", p.fromClient(t, ack), deliver)
	wantVerdict(t, "denied", p.between(t, p.client, p.server, clientPort, 22, syn), dropped)
	events := p.events(t)
	if len(events) != 2 {
		t.Fatalf("events %+v, want two", events)
	}
	for i, want := range []struct {
		port   uint16
		reason abi.DropReason
		path   uint8
	}{{serverPort, abi.DropNone, abi.PathShortcut}, {22, abi.DropPolicyIngress, 0}} {
		e := events[i]
		if e.Source.IP() != p.client.ip4 || e.Destination.IP() != p.server.ip4 || abi.Port(e.SourcePort) != clientPort || abi.Port(e.DestinationPort) != want.port ||
			e.Id != p.client.id || e.Place != abi.EventFromPod || abi.DropReason(e.Reason) != want.reason || e.Protocol != 6 || e.Path != want.path || e.Time == 0 || e.Length == 0 {
			t.Errorf("event %+v, want port %d, reason %s", e, want.port, want.reason)
		}
	}
}

// TestFlowEventFlood drops more packets than may be told of: the rest is counted, and the verdicts stay.
func TestFlowEventFlood(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	p.events(t)
	const sent = 50_000
	frame := segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), syn)
	opts := &ebpf.RunOptions{Data: frame, Context: skBuff{Ifindex: uint32(p.client.index)}, Repeat: sent} // within one tick or two, also in an emulated machine
	wantVerdict(t, "denied", p.runWith(t, p.objects.FromPod, opts), dropped)
	told := len(p.events(t))
	var budgets []abi.EventBudget
	if err := p.objects.EventBudgets.Lookup(uint32(0), &budgets); err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	for _, b := range budgets {
		lost += b.Lost
	}
	if uint64(told)+lost != sent || told == 0 || lost == 0 {
		t.Errorf("%d events were told and %d lost, of %d", told, lost, sent)
	}
}

// TestFlowEventShare has a pod flood the node with denied packets: another pod's denied packets in the same second are
// told of.
func TestFlowEventShare(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
	onCPU(t, 0) // each CPU has shares of its own
	frame := segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), syn)
	flood := &ebpf.RunOptions{Data: frame, Context: skBuff{Ifindex: uint32(p.client.index)}, Repeat: 5_000}
	p.runWith(t, p.objects.FromPod, flood)
	p.fromServer(t, syn)
	for _, e := range p.events(t) {
		if e.Id == p.server.id {
			return
		}
	}
	t.Error("the server's denied packet is not among the events")
}
