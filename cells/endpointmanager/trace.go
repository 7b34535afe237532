package endpointmanager

import "time"

// stopwatch times the phases of one operation.
type stopwatch struct {
	trace Trace
	last  time.Time
}

// startWatch begins an operation.
func startWatch(op Operation) *stopwatch {
	now := time.Now()
	return &stopwatch{trace: Trace{Operation: op, Began: now}, last: now}
}

// startWatchSince begins an operation whose caller began that long ago.
func startWatchSince(op Operation, lead time.Duration) *stopwatch {
	w := startWatch(op)
	w.trace.Began = w.trace.Began.Add(-lead)
	w.trace.Phases = append(w.trace.Phases, Phase{Name: "plugin", Duration: lead})
	return w
}

// lap ends the phase that has run since the last one ended, and returns err.
func (w *stopwatch) lap(name string, err error) error {
	now := time.Now()
	w.trace.Phases = append(w.trace.Phases, Phase{Name: name, Duration: now.Sub(w.last), Err: err})
	w.trace.Duration += now.Sub(w.last)
	w.last = now
	return err
}

// finish returns the trace of the whole operation, whose error says what took the time.
func (w *stopwatch) finish(ep Endpoint, err error) Trace {
	w.trace.Endpoint, w.trace.Err = ep, w.trace.timed(err)
	return w.trace
}
