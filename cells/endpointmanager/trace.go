package endpointmanager

import (
	"time"

	"golang.org/x/sys/unix"
)

// stopwatch times the phases of one operation.
type stopwatch struct {
	trace Trace
	last  time.Time
}

// startWatch begins an operation whose caller began, on CLOCK_BOOTTIME, at began; zero when the caller did not say.
func startWatch(op Operation, began time.Duration) *stopwatch {
	now := time.Now()
	w := &stopwatch{trace: Trace{Operation: op, Began: now}, last: now}
	if lead := bootTime() - began; began > 0 && lead >= 0 {
		w.trace.Began = now.Add(-lead)
		w.trace.Phases = append(w.trace.Phases, Phase{Name: "plugin", Duration: lead})
	}
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

// finish returns the trace of the whole operation.
func (w *stopwatch) finish(ep Endpoint, err error) Trace {
	w.trace.Endpoint, w.trace.Err = ep, err
	return w.trace
}

// wallTime is the time for people: a value that is the same after it was written to the ledger and read again.
func wallTime() time.Time { return time.Now().Round(0).UTC() }

// bootTime is the time since the node booted, suspended or not: the clock that the plugin and the agent share.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
