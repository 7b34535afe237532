package monitor

import (
	"sync"

	v1 "porin.dev/porin/api/v1"
)

// ring holds the last events. Readers keep their own place: the Seq of the last event they have.
type ring struct {
	size int

	mu     sync.Mutex // guards the fields below
	events []v1.Event // the one with Seq s is at (s-1) % size; grows up to size
	last   uint64     // Seq of the newest event; 0 when there is none
	wake   chan struct{}
	closed bool
}

func newRing(size int) *ring { return &ring{size: size} }

// add gives the event its Seq and wakes the readers.
func (r *ring) add(event v1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	event.Seq = r.last
	if len(r.events) < r.size {
		r.events = append(r.events, event)
	} else {
		r.events[r.index(event.Seq)] = event
	}
	r.wakeAll()
}

// close ends the readers that have read all. Events are still taken, for those who read what there is.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.wakeAll()
}

// wakeAll wants mu.
func (r *ring) wakeAll() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// batch copies into buf the events after seq, as many as fit, oldest first. When there is none it returns a channel
// that is closed when there may be, or nil when there will be none.
func (r *ring) batch(seq uint64, buf []v1.Event) (n int, wake <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := max(seq, r.last-uint64(len(r.events))) + 1
	for ; next <= r.last && n < len(buf); next++ {
		buf[n] = r.events[r.index(next)]
		n++
	}
	if n > 0 || r.closed {
		return n, nil
	}
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return 0, r.wake
}

// newest is the Seq of the newest event, or 0.
func (r *ring) newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// index wants a Seq that is at least 1.
func (r *ring) index(seq uint64) int { return int((seq - 1) % uint64(r.size)) }
