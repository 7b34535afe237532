package endpointtest

import (
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// Listener is a subscriber to test, and what the test can see of it.
type Listener struct {
	Subscriber endpoint.Subscriber
	// Knows reports whether the subscriber has anything for the endpoint now; it may come and go a while after the
	// call. When it is nil, the subscriber keeps nothing.
	Knows func(t testing.TB, ep endpoint.Endpoint) bool
}

// TestSubscriber holds a subscriber to the promises of [endpoint.Subscriber]. newListener returns one without
// events, for each test; endpoints is the manager's table, for a subscriber that reads it. Run it with the race
// detector.
func TestSubscriber(t *testing.T, newListener func(t *testing.T, endpoints *Endpoints) Listener) {
	for _, check := range subscriberChecks {
		t.Run(check.name, func(t *testing.T) {
			endpoints := NewEndpoints()
			check.run(t, life{newListener(t, endpoints), endpoints})
		})
	}
}

var subscriberChecks = []struct {
	name string
	run  func(t testing.TB, l life)
}{
	{"created and deleted", checkCreated},
	{"restored and deleted", checkRestored},
	{"next life", checkNextLife},
	{"deleted twice", checkDeletedTwice},
	{"deleted without creation", checkDeletedUnknown},
	{"concurrent lives", checkConcurrentLives},
}

// soon bounds a call of a subscriber or an observer, which is on the path of a caller's answer, and whose work goes to
// a loop of its own. A machine with much to do needs some of it.
const soon = 2 * time.Second

// promptly runs a call and fails the test when it takes long.
func promptly(t testing.TB, what string, call func()) {
	t.Helper()
	began := time.Now()
	call()
	if took := time.Since(began); took > soon {
		t.Errorf("%s blocked its caller for %s", what, took)
	}
}

// life tells a subscriber of endpoints as the manager does: the table is changed before.
type life struct {
	Listener
	endpoints *Endpoints
}

func (l life) created(t testing.TB, ep endpoint.Endpoint) {
	t.Helper()
	l.endpoints.Put(ep)
	promptly(t, "EndpointCreated", func() { l.Subscriber.EndpointCreated(ep) })
}

func (l life) restored(t testing.TB, ep endpoint.Endpoint) {
	t.Helper()
	l.endpoints.Put(ep)
	promptly(t, "EndpointRestored", func() { l.Subscriber.EndpointRestored(ep) })
}

func (l life) deleted(t testing.TB, ep endpoint.Endpoint) {
	t.Helper()
	l.endpoints.Delete(ep.ID)
	ep.State = endpoint.Disconnected
	promptly(t, "EndpointDeleted", func() { l.Subscriber.EndpointDeleted(ep, endpoint.DeleteConfig{}) })
}

// wants waits until the subscriber has, or has not, something for the endpoint.
func (l life) wants(t testing.TB, ep endpoint.Endpoint, want bool, when string) {
	t.Helper()
	if l.Knows == nil {
		return
	}
	for end := time.Now().Add(soon); l.Knows(t, ep) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s: the subscriber knows %s: %t, want %t", when, ep.Spec.Attachment, !want, want)
			return
		}
	}
}

// ready returns endpoint number i when it is whole.
func ready(i int) endpoint.Endpoint {
	ep := withAddresses(Endpoint(i))
	ep.State = endpoint.Ready
	return ep
}

func checkCreated(t testing.TB, l life) {
	ep, other := ready(1), ready(2)
	l.created(t, ep)
	l.created(t, other)
	l.wants(t, ep, true, "after EndpointCreated")
	l.deleted(t, ep)
	l.wants(t, ep, false, "after EndpointDeleted")
	l.wants(t, other, true, "after EndpointDeleted of another endpoint")
}

func checkRestored(t testing.TB, l life) {
	ep := ready(1)
	l.restored(t, ep)
	l.wants(t, ep, true, "after EndpointRestored")
	l.deleted(t, ep)
	l.wants(t, ep, false, "after EndpointDeleted")
}

// checkNextLife gives the attachment and the addresses of an endpoint to the next one, which has another number.
func checkNextLife(t testing.TB, l life) {
	ep := ready(1)
	for i := range 5 {
		ep.ID = uint16(1 + i)
		l.created(t, ep)
		l.wants(t, ep, true, "after EndpointCreated")
		if i < 4 {
			l.deleted(t, ep)
		}
	}
	l.wants(t, ep, true, "in the last of several lives")
	l.deleted(t, ep)
	l.wants(t, ep, false, "after EndpointDeleted")
}

func checkDeletedTwice(t testing.TB, l life) {
	ep := ready(1)
	l.created(t, ep)
	l.deleted(t, ep)
	l.deleted(t, ep)
	l.wants(t, ep, false, "after EndpointDeleted twice")
	l.created(t, ep)
	l.wants(t, ep, true, "after EndpointCreated again")
}

// checkDeletedUnknown is of an endpoint whose creation failed early, or whose attachment alone is known.
func checkDeletedUnknown(t testing.TB, l life) {
	other := ready(2)
	l.created(t, other)
	l.deleted(t, ready(1))
	l.deleted(t, Endpoint(3))
	l.deleted(t, endpoint.Endpoint{Spec: endpoint.Spec{Attachment: Endpoint(4).Spec.Attachment}})
	l.wants(t, ready(1), false, "after EndpointDeleted alone")
	l.wants(t, other, true, "after EndpointDeleted of another endpoint")
}

func checkConcurrentLives(t testing.TB, l life) {
	const attachments, lives = 16, 10
	var wg sync.WaitGroup
	for i := range attachments {
		wg.Go(func() {
			ep := ready(1 + i)
			for range lives {
				l.created(t, ep)
				l.deleted(t, ep)
			}
			if i%2 == 0 {
				l.created(t, ep)
			}
		})
	}
	wg.Wait()
	for i := range attachments {
		l.wants(t, ready(1+i), i%2 == 0, "after many lives beside others")
	}
}
