package flow

import (
	"testing"
	"time"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/internal/boottime"
)

// TestAddressReused deletes a pod and gives its address and number to another one: the first one's flows are read after
// that.
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

// TestEventsOfPreviousAgent reads what a pod has done that was deleted while no agent ran, when another one has its
// number and address already.
func TestEventsOfPreviousAgent(t *testing.T) {
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
			t.Errorf("flow %d: decisions are there: %v; the policies know the second pod only", i, ruled)
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
