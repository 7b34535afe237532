package stream

import "sync"

// Ring holds the last records. They are numbered from 1 on. Its methods may be called concurrently.
type Ring[T any] struct {
	size int

	mu      sync.Mutex // guards the fields below
	records []T        // number n is at (n-1) % size; grows up to size
	last    uint64     // the number of the newest one; 0 when there is none
	wake    chan struct{}
	closed  bool
}

// NewRing returns a ring for that many records.
func NewRing[T any](size int) *Ring[T] { return &Ring[T]{size: size} }

// Add numbers the records and wakes the readers.
func (r *Ring[T]) Add(records ...T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range records {
		r.last++
		if len(r.records) < r.size {
			r.records = append(r.records, record)
		} else {
			r.records[r.index(r.last)] = record
		}
	}
	r.wakeAllLocked()
}

// Close ends each reader when it has read all records. Add still works: the last records of the agent are read, too.
func (r *Ring[T]) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.wakeAllLocked()
}

func (r *Ring[T]) wakeAllLocked() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// batch copies into buf the records after seq, as many as fit, oldest first; first is the number of the first one. When
// there is none it returns a channel that is closed when there may be, or nil when there will be none.
func (r *Ring[T]) batch(seq uint64, buf []T) (first uint64, n int, wake <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = max(seq, r.last-uint64(len(r.records))) + 1
	for next := first; next <= r.last && n < len(buf); next++ {
		buf[n] = r.records[r.index(next)]
		n++
	}
	if n > 0 || r.closed {
		return first, n, nil
	}
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return first, 0, r.wake
}

// Newest is the number of the newest record, or 0.
func (r *Ring[T]) Newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// index expects a number that is at least 1.
func (r *Ring[T]) index(seq uint64) int { return int((seq - 1) % uint64(r.size)) }
