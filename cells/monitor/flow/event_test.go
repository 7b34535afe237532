package flow

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/internal/boottime"
)

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

// TestRemotePods has pods of other nodes at one end: their names and labels are shown, and what the policies decide
// about this node's pod.
func TestRemotePods(t *testing.T) {
	const audited = `{name: test, namespace: default, annotations: {porin.dev/audit: "true"}}`
	toWeb, fromWeb := tuple("10.0.1.2", clientPort, "10.0.0.1", httpPort), tuple("10.0.0.1", clientPort, "10.0.1.2", httpPort)
	for _, row := range []struct {
		name, metadata, policy string
		event                  abi.FlowEvent
		want                   string
	}{
		{"allowed", "", webFromClient, seen(1, abi.EventToPod, toWeb), "allowed to-pod client:41234 -> web:80, ingress rule 0 of test"},
		{"denied", "", webFromClient, droppedFor(abi.DropPolicyIngress, seen(1, abi.EventToPod, tuple("10.0.1.3", clientPort, "10.0.0.1", httpPort))),
			"denied to-pod other:41234 -> web:80, policy-ingress, ingress rule -1 of test"},
		{"audit", audited, webFromClient, seen(1, abi.EventToPod, tuple("10.0.1.3", clientPort, "10.0.0.1", httpPort)),
			"audit to-pod other:41234 -> web:80, ingress rule -1 of test"},
		{"to a pod of another node, by the stack", "", strings.ReplaceAll(clientToWeb, "client", "web"), toStack(seen(1, abi.EventFromPod, tuple("10.0.0.1", clientPort, "10.0.1.4", httpPort))),
			"allowed from-pod web:41234 -> web:80, egress rule 0 of test"},
		{"audit of the sender", audited, strings.ReplaceAll(clientToNobody, "client", "web"), shortcut(seen(1, abi.EventFromPod, fromWeb)),
			"audit from-pod web:41234 -> client:80, egress rule -1 of test"},
		{"what the receiver's node denies has passed here", "", strings.ReplaceAll(webFromClient, "web", "client"), shortcut(seen(1, abi.EventFromPod, fromWeb)),
			"allowed from-pod web:41234 -> client:80"},
		{"what the sender's node would have denied is in audit there", "", clientToNobody, seen(1, abi.EventToPod, toWeb), "allowed to-pod client:41234 -> web:80"},
		{"told long ago: the address may have been another pod's", "", webFromClient, func() abi.FlowEvent {
			e := seen(1, abi.EventToPod, toWeb)
			e.Time -= uint64(departedTime + time.Second)
			return e
		}(), "allowed to-pod pod 10.0.1.2:41234 -> web:80"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, 10)
			w.pod(1, "web")
			w.remotePod(2, "client")
			w.remotePod(3, "other")
			w.remotePod(4, "web")
			w.put(cmp.Or(row.metadata, "{name: test, namespace: default}"), row.policy)
			w.tell(row.event)
			w.wants("told", row.want)
			if flows, _ := w.Recent(); len(flows) != 1 && row.event.Time > uint64(boottime.Now()-departedTime) {
				t.Errorf("%d recent flows, want the one", len(flows))
			}
		})
	}
}

// TestNames: a flow to outside shows the names that its pod has asked for, and no other pod's.
func TestNames(t *testing.T) {
	w := newWorld(t, 10)
	w.pod(1, "web")
	w.pod(2, "client")
	w.pod(3, "other")
	learn := func(endpoint uint16, name string) {
		t.Helper()
		if err := policy.LearnAndWait(t.Context(), w.resolved, endpoint, name, []dnsname.Address{{Addr: netip.MustParseAddr(outside), TTL: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 9 {
		learn(2, fmt.Sprintf("n%d.example.com", i))
	}
	learn(3, "other.example.com")
	toOutside := tuple("10.0.0.2", clientPort, outside, 443)
	w.tell(
		toStack(seen(2, abi.EventFromPod, toOutside)),
		toStack(seen(3, abi.EventFromPod, tuple("10.0.0.3", clientPort, outside, 443))),
		toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "198.51.100.10", 443))),
		seen(2, abi.EventToPod, tuple(outside, 443, "10.0.0.2", httpPort)),
	)
	var got [][]string
	for _, f := range w.told("") {
		got = append(got, f.To.Names)
		if f.From.Names != nil {
			t.Errorf("who has opened a connection has names: %+v", f)
		}
	}
	if diff := gocmp.Diff([][]string{{"n8.example.com", "n7.example.com", "n6.example.com"}, {"other.example.com"}, nil, nil}, got); diff != "" {
		t.Errorf("names of the servers (-want +got):\n%s", diff)
	}
}

// TestAudit has policies that are not in force: packets that they would deny are allowed, and reported with the rule.
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

// TestWithoutTranslations has a kernel without access to conntrack: everything is shown as the datapath has seen it.
func TestWithoutTranslations(t *testing.T) {
	w := newWorld(t, 4)
	w.Collector.translations = fakeStack(nil)
	w.pod(2, "client")
	w.policy("test", clientToNobody)
	toOutside := tuple("10.0.0.2", clientPort, outside, 443)
	w.tell(toStack(seen(2, abi.EventFromPod, toOutside)), droppedFor(abi.DropPolicyEgress, seen(2, abi.EventToUplink, toOutside)))
	w.wants("told", "denied to-uplink client:41234 -> world 198.51.100.9:443, policy-egress, egress rule -1 of test")
}
