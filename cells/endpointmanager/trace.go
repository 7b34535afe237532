package endpointmanager

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// stopwatch times the phases of one operation.
type stopwatch struct {
	trace endpoint.Trace
	last  time.Time
}

// startWatch begins an operation.
func startWatch(op endpoint.Operation) *stopwatch {
	now := time.Now()
	return &stopwatch{trace: endpoint.Trace{Operation: op, Began: now}, last: now}
}

// startWatchSince begins an operation whose caller began that long ago.
func startWatchSince(op endpoint.Operation, lead time.Duration) *stopwatch {
	w := startWatch(op)
	w.trace.Began = w.trace.Began.Add(-lead)
	w.trace.Phases = append(w.trace.Phases, endpoint.Phase{Name: "plugin", Duration: lead})
	return w
}

// lap ends the phase that has run since the last one ended, and returns err.
func (w *stopwatch) lap(name string, err error) error {
	now := time.Now()
	w.trace.Phases = append(w.trace.Phases, endpoint.Phase{Name: name, Duration: now.Sub(w.last), Err: err})
	w.trace.Duration += now.Sub(w.last)
	w.last = now
	return err
}

// finish returns the trace of the whole operation, whose error says how long it took, and which phase most of that.
func (w *stopwatch) finish(ep endpoint.Endpoint, err error) endpoint.Trace {
	w.trace.Endpoint, w.trace.Err = ep, err
	if slowest, ok := w.trace.SlowestPhase(); ok && err != nil {
		w.trace.Err = fmt.Errorf("%w (after %s, of which %s took %s)", err, roundDuration(w.trace.Duration), slowest.Name, roundDuration(slowest.Duration))
	}
	return w.trace
}

// roundDuration keeps three figures.
func roundDuration(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}

// keptTraces is how many operations are remembered.
const keptTraces = 1000

// traces remembers the latest operations, also of endpoints that are gone. It is an [endpoint.Observer].
type traces struct {
	mu   sync.Mutex // guards the fields below
	ring []endpoint.Trace
	next int // where the next one goes
}

func newTraces() *traces { return &traces{} }

// Observe implements [endpoint.Observer].
func (t *traces) Observe(trace endpoint.Trace) {
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
func (t *traces) latest(wanted func(endpoint.Endpoint) bool) []endpoint.Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []endpoint.Trace{}
	for i := range t.ring {
		trace := t.ring[(t.next+len(t.ring)-1-i)%len(t.ring)]
		if wanted(trace.Endpoint) {
			list = append(list, trace)
		}
	}
	return list
}

func (s routes) traces(w http.ResponseWriter, r *http.Request) error {
	wanted, err := traceFilter(r.URL.Query().Get("ref"))
	if err != nil {
		return err
	}
	list := []v1.Trace{}
	for _, t := range s.Traces.latest(wanted) {
		out := v1.Trace{
			Operation: string(t.Operation), Endpoint: t.Endpoint.Spec.Attachment.String(), Pod: t.Endpoint.Spec.Pod.String(),
			Began: t.Began, Phases: []v1.Phase{}, Error: fault.Text(t.Err),
		}
		for _, p := range t.Phases {
			out.Duration += p.Duration
			out.Phases = append(out.Phases, v1.Phase{Name: p.Name, Duration: p.Duration, Error: fault.Text(p.Err)})
		}
		list = append(list, out)
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// traceFilter reads a reference to endpoints that may be gone: what [endpoint.ParseRef] reads, or a pod as
// namespace/name, or a container's ID or its beginning.
func traceFilter(text string) (func(endpoint.Endpoint) bool, error) {
	if text == "" {
		return func(endpoint.Endpoint) bool { return true }, nil
	}
	if ref, err := endpoint.ParseRef(text); err == nil {
		return func(ep endpoint.Endpoint) bool { return ref.Matches(ep) }, nil
	}
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return func(ep endpoint.Endpoint) bool { return ep.Spec.Pod.Namespace == namespace && ep.Spec.Pod.Name == name }, nil
	}
	if err := endpoint.ValidateContainerID(text); err != nil {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("endpoint reference %.64q: want a container ID, a pod as NAMESPACE/NAME, or a reference to an endpoint", text))
	}
	return func(ep endpoint.Endpoint) bool { return strings.HasPrefix(ep.Spec.Attachment.ContainerID, text) }, nil
}
