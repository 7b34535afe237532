package flow

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/conntrack"
)

// endless tells as fast as it is read.
type endless struct {
	event abi.FlowEvent
	lost  uint64
	read  int
}

func (s *endless) Read(each func(*abi.FlowEvent) bool) (uint64, error) {
	for more := true; more; s.read++ {
		more = each(&s.event)
	}
	s.lost += 1000
	return s.lost, nil
}

// TestFlood reads from a source that has always more: a round ends, the memory is bounded, and what is lost is counted.
func TestFlood(t *testing.T) {
	const kept = 100
	w := newWorld(t, kept)
	w.pod(1, "web")
	w.pod(2, "client")
	source := &endless{event: shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)))}
	w.Collector.source = source
	rounds := 0
	began := time.Now()
	for ; rounds < 3 || source.read <= kept; rounds++ { // on a busy machine a round reads few
		if err := w.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 100*time.Duration(rounds)*readTime { // on a busy machine
		t.Errorf("%d rounds took %s", rounds, took)
	}
	flows := w.told("")
	if last := flows[len(flows)-1]; len(flows) != kept || last.Lost != 1000 || last.Verdict != "" {
		t.Errorf("%d flows are kept, want %d; the last is %+v, want 1000 lost", len(flows), kept, last)
	}
	counts := w.Counts()
	if counts.Lost != source.lost || source.lost < uint64(rounds)*1000 || counts.Verdicts[allowed] != uint64(source.read) {
		t.Errorf("counts %+v of %d events", counts, source.read)
	}
	if recent, _ := w.Recent(); len(recent) != 1 || recent[0].Count != uint64(source.read) {
		t.Errorf("recent %+v of %d events", recent, source.read)
	}
}

// TestSlowClient asks for what comes after a flow that the ring has lost.
func TestSlowClient(t *testing.T) {
	w := newWorld(t, 4)
	for range 10 {
		w.tell(shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort))))
	}
	flows := w.told("?since=3")
	if len(flows) != 5 || flows[0].Lost != 3 || flows[0].Seq != 6 || flows[1].Seq != 7 {
		t.Errorf("flows %+v, want that 4 to 6 are lost, and then four", flows)
	}
	if flows := w.told("?since=99"); len(flows) != 4 || flows[0].Lost != 0 {
		t.Errorf("since one of an earlier life: %+v, want all", flows)
	}
}

func TestSourceFails(t *testing.T) {
	w := newWorld(t, 4)
	w.source.err, w.source.lost = errors.New("not now"), 7
	if err := w.read(t.Context()); err == nil {
		t.Error("no error")
	}
	w.source.err = nil
	w.tell()
	if flows := w.told(""); len(flows) != 1 || flows[0].Lost != 7 {
		t.Errorf("flows %+v, want that 7 were lost", flows)
	}
}

// TestReadNow: a reader gets the kernel's flows up to now, before the next round reads them.
func TestReadNow(t *testing.T) {
	w := newWorld(t, 10)
	w.pod(2, "client")
	event := toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, outside, 443)))
	w.source.events = []abi.FlowEvent{event}
	if flows, _ := w.Recent(); len(flows) != 1 {
		t.Errorf("recent flows %+v, want the one that was told", flows)
	}
	w.source.events = []abi.FlowEvent{event}
	if flows := w.told(""); len(flows) != 2 {
		t.Errorf("flows %+v, want both that were told", flows)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t, 10)
	w.pod(2, "client")
	w.source.lost = 3
	toOutside := tuple("10.0.0.2", clientPort, outside, 443)
	w.tell(
		toStack(seen(2, abi.EventFromPod, toOutside)), toStack(seen(2, abi.EventFromPod, toOutside)),
		droppedFor(abi.DropPolicyEgress, seen(2, abi.EventToUplink, toOutside)), droppedFor(abi.DropPathClash, seen(2, abi.EventFromPod, toOutside)),
	)
	m := newMetrics(w.Collector)
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, %v", problems, err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = metric.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"porin_monitor_flows_total  allowed": 2, "porin_monitor_flows_total policy-egress denied": 1, "porin_monitor_flows_total path-clash dropped": 1,
		"porin_monitor_flows_total arp dropped": 0, "porin_monitor_flows_lost_total": 3,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %v, %v, want %v", name, n, ok, want)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	for _, n := range []int{-1, 0, 1_000_001} {
		if _, err := New(Config{Flows: n}, Params{}); err == nil {
			t.Errorf("%d flows: no error", n)
		}
	}
}

// refusing is a stack that cannot be asked about GRE, as the kernel's, and fails later.
type refusing struct{ err error }

func (s *refusing) Translate(protocol uint8, _ conntrack.Tuple, _ bool) (conntrack.Connection, bool, error) {
	if protocol == unix.IPPROTO_GRE {
		return conntrack.Connection{}, false, fmt.Errorf("ask: %w", unix.EINVAL)
	}
	return conntrack.Connection{}, false, s.err
}

// TestUntranslatableWarning: a protocol that conntrack cannot be asked about is no reason to say that nothing is
// translated.
func TestUntranslatableWarning(t *testing.T) {
	w := newWorld(t, 4)
	var text bytes.Buffer
	stack := &refusing{}
	w.Collector.log, w.Collector.translations = slog.New(slog.NewTextHandler(&text, nil)), stack
	w.pod(2, "client")
	request := toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", 0, outside, 0)))
	request.Protocol = unix.IPPROTO_GRE
	w.tell(request)
	if text.Len() > 0 {
		t.Errorf("GRE: %s", text.String())
	}
	stack.err = unix.EPERM
	request.Protocol = unix.IPPROTO_TCP
	w.tell(request, request)
	if n := strings.Count(text.String(), "without the node's translation"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, text.String())
	}
}
