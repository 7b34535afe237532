package flow

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/conntrack"
)

// summary is what tells flows apart in these tests: verdict, ends, Service, and who has decided.
func summary(f v1.Flow) string {
	end := func(e v1.FlowEnd) string {
		name := e.Kind + " " + e.Address.String()
		if e.Pod.Name != "" {
			name = e.Pod.Name
			if e.Labels["app"] != name {
				name += " without its labels"
			}
		}
		return fmt.Sprintf("%s:%d", name, e.Port)
	}
	if f.Lost > 0 {
		return fmt.Sprintf("%d lost", f.Lost)
	}
	text := fmt.Sprintf("%s %s %s -> %s", f.Verdict, f.Place, end(f.From), end(f.To))
	if f.Service.Address.IsValid() {
		text += " by " + f.Service.Address.String()
	}
	if f.Reply {
		text += ", reply"
	}
	if f.Reason != "" {
		text += ", " + f.Reason
	}
	for _, d := range []*v1.PolicyDecision{f.Egress, f.Ingress} {
		if d != nil && d.Rule != nil {
			text += fmt.Sprintf(", %s rule %d of %s", d.Rule.Direction, d.Rule.Index, d.Rule.Policy)
		}
	}
	return text
}

func (w *world) wants(when string, want ...string) {
	w.Helper()
	var got []string
	for _, f := range w.told("") {
		got = append(got, summary(f))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

const (
	webFromClient  = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}"
	clientToWeb    = "{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}"
	clientToNobody = "{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]}"
)

// TestVerdicts has one event of each kind that the datapath tells, or more where they are about one packet.
func TestVerdicts(t *testing.T) {
	toWeb := tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)
	fromOther := tuple("10.0.0.3", clientPort, "10.0.0.1", httpPort)
	toService, toOutside := tuple("10.0.0.2", clientPort, service, httpPort), tuple("10.0.0.2", clientPort, outside, 443)
	masqueraded := tuple(nodeAddr, 1024, outside, 443)
	for _, row := range []struct {
		name   string
		policy string
		stack  func(fakeStack)
		events []abi.FlowEvent
		want   []string
	}{
		{
			"pod to pod", webFromClient, nil, []abi.FlowEvent{shortcut(seen(2, abi.EventFromPod, toWeb))},
			[]string{"allowed from-pod client:41234 -> web:80, ingress rule 0 of test"},
		},
		{
			"denied by the receiver", webFromClient, nil, []abi.FlowEvent{droppedFor(abi.DropPolicyIngress, seen(3, abi.EventFromPod, fromOther))},
			[]string{"denied from-pod other:41234 -> web:80, policy-ingress, ingress rule -1 of test"},
		},
		{
			"an answer that is denied, as the right is gone", clientToNobody, nil,
			[]abi.FlowEvent{droppedFor(abi.DropPolicyEgress, seen(1, abi.EventFromPod, toWeb.Reverse()))},
			[]string{"denied from-pod client:41234 -> web:80, reply, policy-egress, egress rule -1 of test"},
		},
		{
			"by a Service to a pod: the datapath sees it twice", webFromClient,
			func(s fakeStack) { s.add(toService, toWeb.Reverse()) },
			[]abi.FlowEvent{toStack(seen(2, abi.EventFromPod, toService)), seen(1, abi.EventToPod, toWeb)},
			[]string{"allowed to-pod client:41234 -> web:80 by 10.96.0.1, ingress rule 0 of test"},
		},
		{
			"by a Service to a pod, denied", clientToNobody,
			func(s fakeStack) { s.add(toService, toWeb.Reverse()) },
			[]abi.FlowEvent{toStack(seen(2, abi.EventFromPod, toService)), droppedFor(abi.DropPolicyEgress, seen(1, abi.EventToPod, toWeb))},
			[]string{"denied to-pod client:41234 -> web:80 by 10.96.0.1, policy-egress, egress rule -1 of test"},
		},
		{
			"by a node port, masqueraded", webFromClient,
			func(s fakeStack) {
				s.add(tuple(outside, 5000, nodeAddr, 30080), tuple("10.0.0.1", httpPort, nodeAddr, 2000))
			},
			[]abi.FlowEvent{droppedFor(abi.DropPolicyIngress, seen(1, abi.EventToPod, tuple(nodeAddr, 2000, "10.0.0.1", httpPort)))},
			[]string{"denied to-pod world 198.51.100.9:5000 -> web:80 by 192.0.2.1, policy-ingress, ingress rule -1 of test"},
		},
		{
			"an answer from the stack, denied, as the right is gone", clientToNobody,
			func(s fakeStack) { s.add(toOutside, masqueraded.Reverse()) },
			[]abi.FlowEvent{droppedFor(abi.DropPolicyEgress, seen(2, abi.EventToPod, toOutside.Reverse()))},
			[]string{"denied to-pod client:41234 -> world 198.51.100.9:443, reply, policy-egress, egress rule -1 of test"},
		},
		{
			"to outside, masqueraded", webFromClient,
			func(s fakeStack) { s.add(toOutside, masqueraded.Reverse()) },
			[]abi.FlowEvent{toStack(seen(2, abi.EventFromPod, toOutside))},
			[]string{"allowed from-pod client:41234 -> world 198.51.100.9:443"},
		},
		{
			"to outside, where nothing is tracked", webFromClient, nil, []abi.FlowEvent{toStack(seen(2, abi.EventFromPod, toOutside))},
			[]string{"allowed from-pod client:41234 -> world 198.51.100.9:443"},
		},
		{
			"to outside, denied: the program at the uplink tells", clientToWeb,
			func(s fakeStack) { s.add(toOutside, masqueraded.Reverse()) },
			[]abi.FlowEvent{toStack(seen(2, abi.EventFromPod, toOutside)), droppedFor(abi.DropPolicyEgress, seen(2, abi.EventToUplink, masqueraded))},
			[]string{"denied to-uplink client:41234 -> world 198.51.100.9:443, policy-egress, egress rule -1 of test"},
		},
		{
			"to the node, denied: nobody else tells", clientToWeb, nil, []abi.FlowEvent{toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, nodeAddr, 22)))},
			[]string{"denied from-pod client:41234 -> host 192.0.2.1:22, policy-egress, egress rule -1 of test"},
		},
		{
			"to the node by a Service, denied: conntrack does not know it, and no rule is named", clientToWeb, nil, []abi.FlowEvent{toStack(seen(2, abi.EventFromPod, toService))},
			[]string{"denied from-pod client:41234 -> world 10.96.0.1:80, policy-egress"},
		},
		{
			"from the node", webFromClient, nil, []abi.FlowEvent{seen(2, abi.EventToPod, tuple(nodeAddr, 5000, "10.0.0.2", httpPort))},
			[]string{"allowed to-pod host 192.0.2.1:5000 -> client:80"},
		},
		{
			"a forged address is the pod's that has sent it", webFromClient, nil,
			[]abi.FlowEvent{droppedFor(abi.DropSpoofedAddress, seen(2, abi.EventFromPod, tuple("10.0.0.3", clientPort, "10.0.0.1", httpPort)))},
			[]string{"dropped from-pod client:41234 -> web:80, spoofed-address"},
		},
		{
			"malformed", webFromClient, nil, []abi.FlowEvent{droppedFor(abi.DropMalformed, abi.FlowEvent{Time: uint64(boottime.Now()), Id: 2, Place: abi.EventFromPod})},
			[]string{"dropped from-pod client:0 ->  invalid IP:0, malformed"},
		},
		{
			"the policies say another thing by now, and no rule is named", webFromClient, nil,
			[]abi.FlowEvent{
				droppedFor(abi.DropPolicyIngress, seen(2, abi.EventFromPod, toWeb)), shortcut(seen(3, abi.EventFromPod, fromOther)),
			},
			[]string{"denied from-pod client:41234 -> web:80, policy-ingress", "allowed from-pod other:41234 -> web:80"},
		},
		{
			"told while no agent ran, and forgotten by conntrack: it may be told twice, so it is lost", webFromClient, nil,
			[]abi.FlowEvent{func() abi.FlowEvent {
				e := toStack(seen(2, abi.EventFromPod, toService))
				e.Time -= uint64(11 * time.Second)
				return e
			}()},
			[]string{"1 lost"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, 10)
			w.pod(1, "web")
			w.pod(2, "client")
			w.pod(3, "other")
			w.policy("test", row.policy)
			if row.stack != nil {
				row.stack(w.stack)
			}
			w.tell(row.events...)
			w.wants("told", row.want...)
		})
	}
}

// TestAudit has policies that are not in force: what they would deny is allowed, and told with the rule that would.
func TestAudit(t *testing.T) {
	w := newWorld(t, 10)
	w.pod(1, "web")
	w.pod(2, "client")
	w.pod(3, "other")
	w.put(`{name: tried, namespace: default, annotations: {porin.dev/audit: "true"}}`, webFromClient)
	w.put(`{name: egress, namespace: default, annotations: {porin.dev/audit: "true"}}`, clientToWeb)
	w.tell(
		shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort))),
		shortcut(seen(3, abi.EventFromPod, tuple("10.0.0.3", clientPort, "10.0.0.1", httpPort))),
		toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, nodeAddr, 22))),
		toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, outside, 443))),
		droppedFor(abi.DropPolicyIngress, seen(3, abi.EventFromPod, tuple("10.0.0.3", clientPort, "10.0.0.1", httpPort))),
	)
	w.wants("told",
		"allowed from-pod client:41234 -> web:80",
		"audit from-pod other:41234 -> web:80, ingress rule -1 of tried",
		"audit from-pod client:41234 -> host 192.0.2.1:22, egress rule -1 of egress",
		"audit from-pod client:41234 -> world 198.51.100.9:443, egress rule -1 of egress",
		"denied from-pod other:41234 -> web:80, policy-ingress",
	)
	if flows := w.told("?verdict=audit&port=80"); len(flows) != 1 || flows[0].Ingress.Allowed {
		t.Errorf("flows in audit to port 80: %+v, want one that would be denied", flows)
	}
	if n := w.Counts().Verdicts[audit]; n != 3 {
		t.Errorf("%d are counted, want 3", n)
	}
}

// TestFields has all of one flow.
func TestFields(t *testing.T) {
	w := newWorld(t, 10)
	w.pod(1, "web")
	w.pod(2, "client")
	w.policy("test", webFromClient)
	w.tell(shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort))))
	got := w.told("")[0]
	from, to := got.From, got.To
	if got.Seq != 1 || got.Protocol != "TCP" || got.Length != 74 || from.Kind != "pod" || from.Endpoint != 2 || from.Pod.Namespace != "default" || from.Address.String() != "10.0.0.2" {
		t.Errorf("flow %+v", got)
	}
	if from.Identity == 0 || to.Identity == 0 || from.Identity == to.Identity {
		t.Errorf("identities %d and %d, want two", from.Identity, to.Identity)
	}
	if got.Egress == nil || got.Egress.Reason != "no policy selects the pod" || got.Ingress == nil || !got.Ingress.Allowed || got.Ingress.Reason != "rule" {
		t.Errorf("egress %+v, ingress %+v", got.Egress, got.Ingress)
	}
}

// TestAddressReused deletes a pod and gives its address and number to another one: what the first has sent is read after that.
func TestAddressReused(t *testing.T) {
	w := newWorld(t, 10)
	w.pod(1, "web")
	first := w.pod(2, "client")
	early := shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)))
	toFirst := shortcut(seen(1, abi.EventFromPod, tuple("10.0.0.1", clientPort, "10.0.0.2", httpPort)))
	w.endpoints.Delete(2)
	if err := w.step.Detach(t.Context(), first, endpoint.DeleteConfig{}); err != nil {
		t.Fatal(err)
	}
	w.directory.EndpointDeleted(first, endpoint.DeleteConfig{})
	w.tell(early)
	w.pod(2, "other")
	w.tell(early, toFirst, shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort))))
	w.wants("told",
		"allowed from-pod client:41234 -> web:80", "allowed from-pod client:41234 -> web:80", "allowed from-pod web:41234 -> client:80",
		"allowed from-pod other:41234 -> web:80")
	for i, f := range w.told("") {
		if ruled := f.Egress != nil; ruled != (i == 3) {
			t.Errorf("flow %d, of %s: decisions are there: %v; the policies know the second pod only", i, f.From.Pod.Name, ruled)
		}
	}
}

// TestEventsOfFormerAgent reads what a pod has done that was deleted while no agent ran, when another one has its number and address already.
func TestEventsOfFormerAgent(t *testing.T) {
	w := newWorld(t, 10)
	web := w.pod(1, "web")
	w.directory.EndpointRestored(web)
	early := shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)))
	toNobody := toStack(seen(1, abi.EventFromPod, tuple("10.0.0.1", clientPort, "10.0.0.2", httpPort)))
	w.directory.EndpointCreated(w.pod(2, "other"))
	w.tell(early, toNobody, shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort))))
	w.wants("told",
		"allowed from-pod pod 10.0.0.2:41234 -> web:80", "allowed from-pod web:41234 -> pod 10.0.0.2:80", "allowed from-pod other:41234 -> web:80")
	for i, f := range w.told("") {
		if ruled := f.Egress != nil; ruled != (i == 2) {
			t.Errorf("flow %d: outcomes are there: %v; the policies know the second pod only", i, ruled)
		}
	}
}

func TestDeparted(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 3 * departedCount {
		ep := endpointtest.Endpoint(i + 1)
		w.directory.EndpointDeleted(ep, endpoint.DeleteConfig{})
	}
	if n := len(w.directory.departed); n > departedCount {
		t.Errorf("%d endpoints that are gone are remembered, want %d at the most", n, departedCount)
	}
	w.directory.now = func() time.Duration { return boottime.Now() + departedTime + time.Second }
	w.directory.EndpointDeleted(endpointtest.Endpoint(1), endpoint.DeleteConfig{})
	if n := len(w.directory.departed); n != 1 {
		t.Errorf("%d endpoints are remembered, want the one that has just gone", n)
	}
}

func TestSubscriberConformance(t *testing.T) {
	endpointtest.TestSubscriber(t, func(t *testing.T, endpoints *endpointtest.Endpoints) endpointtest.Listener {
		return endpointtest.Listener{Subscriber: newDirectory(endpoints, boottime.Now)}
	})
}

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
	const rounds = 3
	began := time.Now()
	for range rounds {
		if err := w.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 100*rounds*readTime { // on a busy machine
		t.Errorf("%d rounds took %s", rounds, took)
	}
	flows := w.told("")
	if last := flows[len(flows)-1]; len(flows) != kept || last.Lost != 1000 || last.Verdict != "" {
		t.Errorf("%d flows are kept, want %d; the last is %+v, want 1000 lost", len(flows), kept, last)
	}
	counts := w.Counts()
	if counts.Lost != source.lost || source.lost < rounds*1000 || counts.Verdicts[allowed] != uint64(source.read) {
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

// TestWithoutTranslations has a kernel that does not let conntrack be asked: everything is shown as the datapath has seen it.
func TestWithoutTranslations(t *testing.T) {
	w := newWorld(t, 4)
	w.Collector.translations = fakeStack(nil)
	w.pod(2, "client")
	w.policy("test", clientToNobody)
	toOutside := tuple("10.0.0.2", clientPort, outside, 443)
	w.tell(toStack(seen(2, abi.EventFromPod, toOutside)), droppedFor(abi.DropPolicyEgress, seen(2, abi.EventToUplink, toOutside)))
	w.wants("told", "denied to-uplink client:41234 -> world 198.51.100.9:443, policy-egress, egress rule -1 of test")
}

// refusing is a stack that cannot be asked about GRE, as the kernel's, and fails later.
type refusing struct{ err error }

func (s *refusing) Translate(protocol uint8, _ conntrack.Tuple, _ bool) (conntrack.Connection, bool, error) {
	if protocol == unix.IPPROTO_GRE {
		return conntrack.Connection{}, false, fmt.Errorf("ask: %w", unix.EINVAL)
	}
	return conntrack.Connection{}, false, s.err
}

// TestUntranslatableWarning: a protocol that conntrack cannot be asked about is no reason to say that nothing is translated.
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

func TestFilters(t *testing.T) {
	w := newWorld(t, 100)
	w.pod(1, "web")
	w.pod(2, "client")
	w.policy("test", webFromClient)
	toWeb, toService := tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort), tuple("10.0.0.2", 999, service, 8000)
	w.stack.add(toService, tuple("10.0.0.1", httpPort, "10.0.0.2", 999))
	udp := droppedFor(abi.DropPolicyIngress, seen(1, abi.EventToPod, tuple(outside, 53, "10.0.0.1", 53)))
	udp.Protocol = 17
	ping := shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", 80, "10.0.0.1", 80)))
	ping.Protocol = 1
	w.source.lost = 5
	w.tell(
		shortcut(seen(2, abi.EventFromPod, toWeb)), // 1
		udp, // 2
		toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, outside, 443))),              // 3
		droppedFor(abi.DropSpoofedAddress, seen(2, abi.EventFromPod, tuple(outside, 1, service, 2))), // 4
		seen(1, abi.EventToPod, tuple("10.0.0.2", 999, "10.0.0.1", httpPort)),                        // 5, by the Service
		ping, // 6
	) // and 7, which says that 5 were lost
	for query, want := range map[string][]uint64{
		"":                        {1, 2, 3, 4, 5, 6, 7},
		"?pod=default/web":        {1, 2, 5, 6, 7},
		"?pod=other/web":          {7},
		"?verdict=denied":         {2, 7},
		"?verdict=denied,dropped": {2, 4, 7},
		"?reason=spoofed-address": {4, 7},
		"?protocol=udp":           {2, 7},
		"?protocol=17&port=54":    {7},
		"?port=80":                {1, 5, 7},
		"?port=8000":              {5, 7},
		"?since=4":                {5, 6, 7},
		"?last=2":                 {5, 6, 7},
		"?last=2&pod=default/web&verdict=allowed&port=80": {1, 5, 7},
		"?last=1000": {1, 2, 3, 4, 5, 6, 7},
	} {
		var got []uint64
		for _, f := range w.told(query) {
			got = append(got, f.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: flows %v, want %v", query, got, want)
		}
	}
}

func TestBadQuery(t *testing.T) {
	w := newWorld(t, 1)
	for query, want := range map[string]string{
		"?since=x":                "since=\\\"x\\\": want the seq of a flow",
		"?follow=perhaps":         "want true or false",
		"?pod=web":                "pod=\\\"web\\\": want NAMESPACE/NAME",
		"?pod=/web":               "want NAMESPACE/NAME",
		"?verdict=denied,perhaps": "verdict=\\\"perhaps\\\": want allowed, audit, denied, dropped",
		"?reason=none":            "reason=\\\"none\\\": want no-endpoint, malformed, ",
		"?protocol=quic":          "protocol \\\"quic\\\": want TCP",
		"?port=0":                 "port=\\\"0\\\": want a number from 1 to 65535",
		"?port=65536":             "want a number from 1 to 65535",
		"?last=0":                 "last=\\\"0\\\": want a number from 1 on",
	} {
		if answer := w.get(query); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", query, answer.Code, answer.Body, want)
		}
	}
}

func TestRecent(t *testing.T) {
	w := newWorld(t, 1)
	w.recent.size = 3
	w.pod(2, "client")
	to := func(port uint16) abi.FlowEvent {
		return toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort+port, outside, port)))
	}
	_, start := w.Recent()
	w.tell(to(1), to(2), to(3), to(1), to(4), droppedFor(abi.DropMalformed, to(9)))
	flows, since := w.Recent()
	if !since.After(start) {
		t.Errorf("all are there since %s, want since the last one of port 2, after %s", since, start)
	}
	var got []string
	for _, f := range flows {
		got = append(got, fmt.Sprintf("%s %s:%d %s %d", f.From, f.To, f.Port, f.Protocol, f.Count))
		if f.LastSeen.Before(since) || time.Since(f.LastSeen) > time.Minute {
			t.Errorf("%s was seen last at %s", got[len(got)-1], f.LastSeen)
		}
	}
	want := []string{"10.0.0.2 198.51.100.9:4 TCP 1", "10.0.0.2 198.51.100.9:1 TCP 2", "10.0.0.2 198.51.100.9:3 TCP 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the latest three (-want +got):\n%s", diff)
	}
}

// TestReadNow: who asks hears of what was told a moment ago, before the next round reads it.
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

// TestRecentOfPods has addresses change their owners: what was seen of a pod that is gone is not told as its successor's, nor as that of somebody outside.
func TestRecentOfPods(t *testing.T) {
	w := newWorld(t, 1)
	w.pod(1, "web")
	first := w.pod(2, "client")
	request := shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)))
	wants := func(when string, want ...uint64) {
		t.Helper()
		flows, _ := w.Recent()
		var got []uint64
		for _, f := range flows {
			got = append(got, f.Count)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: flows seen %v times, want %v", when, got, want)
		}
	}
	w.tell(request, request)
	wants("of the first pod", 2)
	w.endpoints.Delete(2)
	w.directory.EndpointDeleted(first, endpoint.DeleteConfig{})
	wants("when the first pod is gone")
	w.tell(request)
	wants("told when the first pod is gone")
	w.pod(2, "other")
	wants("of a second pod that has sent nothing")
	later := request
	later.Time = uint64(boottime.Now())
	w.tell(later)
	wants("of the second pod", 1)
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
