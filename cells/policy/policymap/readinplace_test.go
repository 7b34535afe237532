package policymap_test

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/policymap"
)

// TestReadBesideWriterInPlace has a policy change in place again and again, on a machine that has more to do. Port 80
// is allowed by all of them, so each verdict is that it is: a proxy closes a connection that gets another one. The
// writer waits for programs before it removes rows, and not for a process that reads.
func TestReadBesideWriterInPlace(t *testing.T) {
	m := newMaps(t)
	e, w, ids := engine.New(engine.Config{}), policymap.New(m), map[string]uint16{"pod0": 1}
	allow := func(i int) model.Policy {
		p := allIPv4Policy()
		(*p.Ingress)[0].Ports = []model.Port{{Protocol: model.TCP, First: 80, Last: 80}, {Protocol: model.TCP, First: uint16(1000 + i%1000), Last: uint16(1000 + i%1000)}}
		return p
	}
	apply := func(u engine.Update) {
		t.Helper()
		change := e.Apply(u)
		if err := w.Apply(e, &change, ids); err != nil {
			t.Fatal(err)
		}
	}
	apply(engine.Update{SetPolicies: []model.Policy{allow(0)}, SetEndpoints: []model.Endpoint{podOf(0, true)}})
	var running sync.WaitGroup
	var stop atomic.Bool
	var reads, wrong atomic.Int64
	for range 6 { // what else the process does
		running.Go(func() {
			for x := 0; !stop.Load(); x++ {
			}
		})
	}
	for range 16 {
		running.Go(func() {
			for !stop.Load() {
				value, err := m.Ingress(1, netip.MustParseAddr("192.0.2.1"), false, model.TCP, 80)
				reads.Add(1)
				if err != nil || value != engine.ValueAllow {
					wrong.Add(1)
				}
			}
		})
	}
	changes := 0
	for began := time.Now(); time.Since(began) < 3*time.Second; changes++ {
		apply(engine.Update{SetPolicies: []model.Policy{allow(changes)}})
		select {
		case <-w.Removable():
		case <-time.After(time.Second):
		}
		if err := w.Clean(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	running.Wait()
	t.Logf("%d reads, %d changes, %d wrong verdicts", reads.Load(), changes, wrong.Load())
	if wrong.Load() > 0 {
		t.Errorf("%d of %d verdicts deny what every policy allows", wrong.Load(), reads.Load())
	}
}
