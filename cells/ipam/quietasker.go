package ipam

import (
	"context"
	"sync"
	"time"
)

// Between two questions at least askPause passes, and so much longer than the answer took, so that it takes at most a
// twentieth of one CPU, however much the kernel has to look through.
const (
	askPause = time.Second
	askShare = 20
)

// Asker asks about what has rested before anybody needs it, so that an allocation asks nobody. While it does not run, an
// allocation asks when nothing else is free. It sleeps while nothing is due.
type Asker struct {
	allocator *allocator
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// Start begins it. It is to be called once at the most.
func (q *Asker) Start() {
	if q.allocator.alarm == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.cancel = cancel
	q.done.Go(func() { q.run(ctx) })
}

// Stop ends it, and waits for the question that is under way.
func (q *Asker) Stop() {
	if q.cancel != nil {
		q.cancel()
		q.done.Wait()
	}
}

// Ask asks once, now, about everything that is due.
func (q *Asker) Ask(ctx context.Context) { q.allocator.inquire(ctx, never) }

func (q *Asker) run(ctx context.Context) {
	wake := q.allocator.alarm.wake
	for ctx.Err() == nil {
		wait := q.allocator.untilDue()
		if wait > 0 {
			pause(ctx, wait, wake)
			continue
		}
		began := time.Now()
		q.Ask(ctx)
		pause(ctx, max(askPause, askShare*time.Since(began)), nil)
	}
}

// pause returns after a time, or when it is woken, or when ctx ends.
func pause(ctx context.Context, wait time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// untilDue is how long there is nothing to ask about, and has the alarm go off when that time becomes shorter.
func (a *allocator) untilDue() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, at := a.tidy(), silent
	for _, p := range a.order {
		for _, s := range p.all() {
			at = min(at, s.dueAt(now))
		}
	}
	if a.alarm.at = at; at == silent {
		return silent
	}
	return at - now
}

// dueAt is when something is next to be asked about.
func (s *shelf) dueAt(now time.Duration) time.Duration {
	at := silent
	if !s.pool.asks() {
		return at
	}
	if s.due.head != nil {
		return now
	}
	if e := s.resting.head; e != nil {
		at = min(at, e.since+s.pool.settings.Quarantine)
	}
	if e := s.held.head; e != nil {
		at = min(at, e.asked+askAgain)
	}
	return at
}
