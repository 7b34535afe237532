package endpointmanager

import (
	"fmt"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// keptTraces is how many operations are remembered.
const keptTraces = 1000

// traces remembers the latest operations, also of endpoints that are gone. It is an [Observer].
type traces struct {
	mu   sync.Mutex // guards the fields below
	ring []Trace
	next int // where the next one goes
}

func newTraces() *traces { return &traces{} }

// Observe implements [Observer].
func (t *traces) Observe(trace Trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) < keptTraces {
		t.ring = append(t.ring, trace)
		return
	}
	t.ring[t.next] = trace
	t.next = (t.next + 1) % keptTraces
}

// latest returns what is remembered and wanted, newest first.
func (t *traces) latest(wanted func(Endpoint) bool) []Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []Trace{}
	for i := range t.ring {
		trace := t.ring[(t.next+len(t.ring)-1-i)%len(t.ring)]
		if wanted(trace.Endpoint) {
			list = append(list, trace)
		}
	}
	return list
}

// culprit is the phase that took the largest part of the operation; false when there is none.
func (t Trace) culprit() (slowest Phase, ok bool) {
	for _, p := range t.Phases {
		if p.Name != "undo" && p.Name != "plugin" && p.Duration >= slowest.Duration {
			slowest, ok = p, true
		}
	}
	return slowest, ok
}

// timed adds to the error of an operation how long it took, and what took the time.
func (t Trace) timed(err error) error {
	slowest, ok := t.culprit()
	if err == nil || !ok {
		return err
	}
	return fmt.Errorf("%w (after %s, of which %s took %s)", err, brief(t.Duration), slowest.Name, brief(slowest.Duration))
}

// brief keeps three figures.
func brief(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}

func (t Trace) toV1() v1.Trace {
	out := v1.Trace{
		Operation: string(t.Operation), Endpoint: t.Endpoint.Spec.Attachment.String(), Pod: t.Endpoint.Spec.Pod.String(),
		Began: t.Began, Phases: []v1.Phase{}, Error: errorText(t.Err),
	}
	for _, p := range t.Phases {
		out.Duration += p.Duration
		out.Phases = append(out.Phases, v1.Phase{Name: p.Name, Duration: p.Duration, Error: errorText(p.Err)})
	}
	return out
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
