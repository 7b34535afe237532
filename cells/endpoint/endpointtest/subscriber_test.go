package endpointtest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

func TestSubscriberPasses(t *testing.T) {
	TestSubscriber(t, func(_ *testing.T, _ *Endpoints) Listener {
		events := NewEvents()
		return Listener{Subscriber: events, Knows: events.Knows}
	})
}

// faulty is a subscriber with a defect that a test wants to be found.
type faulty struct {
	*Events
	defect string

	mu   sync.Mutex // guards the field below
	kept map[endpoint.Attachment]endpoint.Endpoint
}

func (f *faulty) EndpointCreated(ep endpoint.Endpoint) {
	f.Events.EndpointCreated(ep)
	switch f.defect {
	case "is slow":
		time.Sleep(time.Minute)
	case "keeps the first life":
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, ok := f.kept[ep.Spec.Attachment]; !ok {
			f.kept[ep.Spec.Attachment] = ep
		}
	}
}

func (f *faulty) EndpointRestored(ep endpoint.Endpoint) {
	if f.defect != "ignores what is restored" {
		f.Events.EndpointRestored(ep)
	}
}

func (f *faulty) EndpointDeleted(ep endpoint.Endpoint, cfg endpoint.DeleteConfig) {
	switch f.defect {
	case "ignores deletions":
		return
	case "forgets everybody":
		f.Events.mu.Lock()
		clear(f.alive)
		f.Events.mu.Unlock()
	}
	f.Events.EndpointDeleted(ep, cfg)
}

func (f *faulty) Knows(t testing.TB, ep endpoint.Endpoint) bool {
	if f.defect == "keeps the first life" {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.kept[ep.Spec.Attachment].ID == ep.ID && f.Events.Knows(t, ep)
	}
	return f.Events.Knows(t, ep)
}

func TestSubscriberFindsDefects(t *testing.T) {
	for _, row := range []struct{ check, defect string }{
		{"created and deleted", "is slow"},
		{"created and deleted", "ignores deletions"},
		{"restored and deleted", "ignores what is restored"},
		{"next life", "keeps the first life"},
		{"deleted twice", "ignores deletions"},
		{"deleted without creation", "forgets everybody"},
		{"concurrent lives", "ignores deletions"},
	} {
		t.Run(row.check+" "+row.defect, func(t *testing.T) {
			for _, c := range subscriberChecks {
				if c.name != row.check {
					continue
				}
				synctest.Test(t, func(t *testing.T) { // in which a minute is short
					f := &faulty{Events: NewEvents(), defect: row.defect, kept: map[endpoint.Attachment]endpoint.Endpoint{}}
					if said := failuresOf(t, func(t testing.TB) { c.run(t, life{Listener{f, f.Knows}, NewEndpoints()}) }); len(said) == 0 {
						t.Errorf("the test %q passes", row.check)
					}
				})
			}
		})
	}
}

// slow is an observer that keeps its caller waiting.
type slow struct{}

func (slow) Observe(endpoint.Trace) { time.Sleep(time.Minute) }

func TestObserverFindsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := failuresOf(t, func(t testing.TB) { checkObserver(t, slow{}, tracesByName()["add"]) }); len(said) == 0 {
			t.Error("an observer that sleeps passes")
		}
	})
}

func TestEndpointsGet(t *testing.T) {
	endpoints := NewEndpoints()
	one, two := ready(1), ready(2)
	two.Spec.Attachment = endpoint.Attachment{ContainerID: "c1", IfName: "eth1"}
	endpoints.Put(one)
	endpoints.Put(two)
	for ref, want := range map[endpoint.Ref]endpoint.Endpoint{
		endpoint.ByID(1): one, endpoint.ByAttachment(two.Spec.Attachment): two, endpoint.ByAddress(two.Addresses.IPv4): two,
	} {
		if got, err := endpoints.Get(ref); err != nil || got != want {
			t.Errorf("Get(%s) = %+v, %v", ref, got, err)
		}
	}
	for ref, want := range map[endpoint.Ref]fault.Kind{endpoint.ByID(3): fault.NotFound, endpoint.ByContainerID("c1"): fault.Conflict} {
		if _, err := endpoints.Get(ref); err == nil || fault.KindOf(err) != want {
			t.Errorf("Get(%s): error %v, want one of kind %s", ref, err, want)
		}
	}
	if endpoints.Delete(1); len(endpoints.List()) != 1 {
		t.Errorf("List after Delete: %v", endpoints.List())
	}
}
