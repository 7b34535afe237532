// Package watchdog checks connections now and then, so that their reads and writes need no deadlines of their own.
package watchdog

import (
	"sync"
	"time"
)

// Watchdog calls a function again and again, without a goroutine that waits.
type Watchdog struct {
	every time.Duration
	check func()

	mu      sync.Mutex // guards the fields below
	timer   *time.Timer
	stopped bool
	running sync.WaitGroup // the timer, or a call
}

// Start returns a watchdog that calls check every so often, each time in a goroutine of its own, and one at a time.
func Start(every time.Duration, check func()) *Watchdog {
	w := &Watchdog{every: every, check: check}
	w.running.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(every, w.run)
	return w
}

// Stop returns when check is not called any more. check must not call it.
func (w *Watchdog) Stop() {
	w.mu.Lock()
	w.stopped = true
	if w.timer.Stop() {
		w.running.Done()
	}
	w.mu.Unlock()
	w.running.Wait()
}

func (w *Watchdog) run() {
	defer w.running.Done()
	if w.hasStopped() {
		return
	}
	w.check()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.running.Add(1)
		w.timer.Reset(w.every)
	}
}

func (w *Watchdog) hasStopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}
