package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
)

// eventServer takes Events; events reads them.
func eventServer(t *testing.T) (server *kubernetestest.Server, newEvents func(node string, others []string, faults *[]policy.Fault) *eventWriter, events func() []corev1.Event) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	server = kubernetestest.New(scheme, kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"},
		kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("events"), Kind: "Event", Namespaced: true})
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	client, err := NewClient(Config{Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	newEvents = func(node string, others []string, faults *[]policy.Fault) *eventWriter {
		e, err := newEventWriter(client, node, eventSources{
			others: func() []string { return others }, policies: func() []policy.Fault { return *faults },
			findings: func() []doctor.Finding { return nil }, nodeUID: func() string { return "node-uid" }, pods: (&failedPods{}).take,
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	events = func() []corev1.Event {
		response, err := http.Get(web.URL + "/api/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var list corev1.EventList
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
			t.Fatal(err)
		}
		server.Requests()
		return list.Items
	}
	return server, newEvents, events
}

var unknownField = policy.Fault{
	Policy: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "db"}, UID: "u1", Texts: []string{`unknown field "spec.ingress[0].from[0].newSelector"`},
}

// sixtyFaults are of sixty policies.
func sixtyFaults() (faults []policy.Fault) {
	for i := range 60 {
		f := unknownField
		f.UID = fmt.Sprint(i)
		faults = append(faults, f)
	}
	return faults
}

// TestPolicyEvents: an Event names the policy and the field. Each fault costs one request, which is made again after a
// failure, and when the API server has deleted the Event.
func TestPolicyEvents(t *testing.T) {
	server, newEvents, events := eventServer(t)
	faults := []policy.Fault{unknownField}
	e := newEvents("a", nil, &faults)
	rounds := func(when string, requests int, failure string) {
		t.Helper()
		for range 2 {
			if err := e.round(t.Context()); (err == nil) != (failure == "") || err != nil && !strings.Contains(err.Error(), failure) {
				t.Errorf("%s: %v, want %q", when, err, failure)
			}
		}
		if n := len(server.Requests()); n != requests {
			t.Errorf("%s: %d requests, want %d", when, n, requests)
		}
	}
	server.Fault(func(kubernetestest.Request) *kubernetestest.Fault {
		return &kubernetestest.Fault{Code: http.StatusForbidden}
	})
	rounds("without the right", 2, "write an Event about NetworkPolicy shop/db")
	server.Fault(nil)
	rounds("with it", 1, "")
	all := events()
	if len(all) != 1 {
		t.Fatalf("%d Events, want 1", len(all))
	}
	event := all[0]
	want := corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Namespace: "shop", Name: "db", UID: "u1"}
	if event.InvolvedObject != want || event.Namespace != "shop" || event.Type != corev1.EventTypeWarning || !strings.Contains(event.Message, "newSelector") {
		t.Errorf("Event %+v, want a warning about %+v that names the field", event, want)
	}
	again := newEvents("b", nil, &faults)
	if err := again.round(t.Context()); err != nil || len(events()) != 1 {
		t.Errorf("of another agent: %v, %d Events, want the one that is there", err, len(events()))
	}
	changed := unknownField
	changed.Texts = []string{strings.Repeat("é", maxMessage)}
	faults = []policy.Fault{changed}
	rounds("with another fault", 1, "")
	faults = nil
	rounds("without faults", 0, "")
	faults = []policy.Fault{unknownField, {Policy: unknownField.Policy, Texts: []string{"of a policy that the API has not told of yet"}}}
	rounds("with the first fault again, whose Event is there", 0, "")
	for name := range e.written {
		e.written[name] = e.written[name].Add(-eventLifetime)
	}
	rounds("when the Event is gone", 1, "")
	for _, event := range events() {
		if len(event.Message) > maxMessage {
			t.Errorf("a message of %d bytes", len(event.Message))
		}
	}
}

// TestPolicyEventsCluster: the Event about a policy of the cluster is in the namespace default.
func TestPolicyEventsCluster(t *testing.T) {
	_, newEvents, events := eventServer(t)
	faults := []policy.Fault{{Policy: model.PolicyID{Kind: model.KindClusterNetworkPolicy, Name: "all"}, UID: "u", Texts: []string{"x"}}}
	if err := newEvents("a", nil, &faults).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := events(); len(all) != 1 || all[0].Namespace != "default" || all[0].InvolvedObject.Namespace != "" || all[0].InvolvedObject.APIVersion != "policy.networking.k8s.io/v1alpha2" {
		t.Errorf("Events %+v", all)
	}
}

// TestPolicyEventsOfOneAgent: of agents that know each other one writes the Events about a policy, and each has its
// share of the policies.
func TestPolicyEventsOfOneAgent(t *testing.T) {
	server, newEvents, _ := eventServer(t)
	faults := sixtyFaults()
	nodes := []string{"a", "b", "c"}
	total := 0
	for _, node := range nodes {
		e := newEvents(node, nodes, &faults)
		e.budget = rate.NewLimiter(rate.Inf, 0)
		if err := e.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := len(server.Requests())
		if n < 10 {
			t.Errorf("the agent of %s has written %d of %d Events", node, n, len(faults))
		}
		total += n
	}
	if total != len(faults) {
		t.Errorf("%d Events were written, want one for each of %d policies", total, len(faults))
	}
}

// TestPodAndNodeEvents: one Event for a pod and the phase in which its ADD failed, and one for the Node and a kind of
// findings.
func TestPodAndNodeEvents(t *testing.T) {
	_, newEvents, events := eventServer(t)
	e := newEvents("a", nil, &[]policy.Fault{})
	failed := &failedPods{}
	e.pods = failed.take
	e.findings = func() []doctor.Finding {
		return []doctor.Finding{{Kind: "endpoint-held", Subject: "c1:eth0", Detail: "no link"}, {Kind: "endpoint-held", Subject: "c2:eth0", Detail: "no link"}}
	}
	fail := func(operation endpoint.Operation, uid string, err error) {
		failed.Observe(endpoint.Trace{
			Operation: operation, Endpoint: endpoint.Endpoint{Spec: endpoint.Spec{Pod: endpoint.Pod{Namespace: "shop", Name: "web", UID: uid}}},
			Phases: []endpoint.Phase{{Name: "queue"}, {Name: "ipam", Err: err}, {Name: "undo", Err: err}}, Err: err,
		})
	}
	full := errors.New("no free address")
	fail(endpoint.OperationAdd, "u1", full)
	fail(endpoint.OperationAdd, "u1", errors.New("no free address, for container c2"))
	fail(endpoint.OperationAdd, "u2", nil)
	fail(endpoint.OperationAdd, "", full)
	fail(endpoint.OperationDel, "u3", full)
	for range 2 {
		if err := e.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, event := range events() {
		got[event.InvolvedObject.Kind+" "+string(event.InvolvedObject.UID)+" in "+event.Namespace] = event.Reason + ": " + event.Message
	}
	want := map[string]string{"Pod u1 in shop": "AttachFailed: phase ipam: no free address", "Node node-uid in default": "EndpointHeld: c1:eth0: no link"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNodeEventBeforePods: the Event about the Node, which says why ADDs fail, does not wait for those about many pods.
func TestNodeEventBeforePods(t *testing.T) {
	_, newEvents, events := eventServer(t)
	e := newEvents("a", nil, &[]policy.Fault{})
	e.findings = func() []doctor.Finding { return []doctor.Finding{{Kind: "resource-runs-out"}} }
	e.pods = func() (pods []event) {
		for i := range maxFailedPods {
			pods = append(pods, event{about: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", UID: types.UID(fmt.Sprint(i))}, reason: reasonAttach})
		}
		return pods
	}
	if err := e.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := events()
	if !slices.ContainsFunc(all, func(event corev1.Event) bool { return event.Reason == "ResourceRunsOut" }) {
		t.Errorf("none of %d Events is about the Node", len(all))
	}
}

// TestEventBudget: an agent writes at most ten Events a minute.
func TestEventBudget(t *testing.T) {
	server, newEvents, _ := eventServer(t)
	faults := sixtyFaults()
	e := newEvents("a", nil, &faults)
	for range 3 {
		if err := e.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n, began := len(server.Requests()), time.Now()
	if n == 0 {
		t.Error("no Event at once")
	}
	for after := time.Duration(0); after < time.Minute; after += eventInterval {
		for e.budget.AllowN(began.Add(after), 1) {
			n++
		}
	}
	if n > eventsPerMinute {
		t.Errorf("%d Events in a minute, want at most %d", n, eventsPerMinute)
	}
}
