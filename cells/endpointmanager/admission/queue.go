// Package admission says whose turn it is when more endpoints are to be made and taken down than may be at the same
// time: deletions first, then critical pods, then all others, a namespace at a time.
package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// Lane is where a piece of work waits for its turn. Lower lanes go first.
type Lane int

// The lanes, in the order of their turns.
const (
	Deletions Lane = iota // deletions: they make room
	Critical              // creations that the node cannot do without
	Fair                  // all others, a namespace at a time
	Lanes
)

func (l Lane) String() string { return [...]string{"delete", "critical", "fair"}[l] }

// ErrBusy is what a creation ends with whose caller could not wait for its turn. No caller is refused earlier.
var ErrBusy = fault.New(fault.Deadline, "its turn did not come in the caller's time")

// Queue bounds how many endpoints are worked on at the same time, and says which is next.
//
// Creations share limit places with the deletions, and get none while a deletion waits. Deletions have as many places
// of their own, so that creations which hang in the kernel never hold up a deletion. Among the namespaces of the fair
// lane turns go round: a namespace that starts a thousand pods waits for itself, not others for it.
type Queue struct {
	limit int

	mu      sync.Mutex // guards the fields below
	running [Lanes]int
	plain   [Fair][]*ticket // of the other lanes
	fair    map[string][]*ticket
	turns   []string // the namespaces of fair, in the order of their turns
}

// Queues keeps apart the endpoints that a hanging IPAM plugin can hold up, and all others.
type Queues struct {
	own       *Queue // of endpoints whose addresses Porin gives
	delegated *Queue // of those with an IPAM plugin
}

// NewQueues returns queues that work on limit endpoints each.
func NewQueues(limit int) *Queues { return &Queues{newQueue(limit), newQueue(limit)} }

func (a *Queues) Of(spec endpoint.Spec) *Queue {
	if spec.IPAM.Type == "" {
		return a.own
	}
	return a.delegated
}

// Counts are the sums of both queues.
func (a *Queues) Counts() (waiting, running [Lanes]int) {
	waiting, running = a.own.Counts()
	moreWaiting, moreRunning := a.delegated.Counts()
	for l := range Lanes {
		waiting[l] += moreWaiting[l]
		running[l] += moreRunning[l]
	}
	return waiting, running
}

// ticket waits for its turn. turn is closed when it has come.
type ticket struct {
	lane      Lane
	namespace string
	turn      chan struct{}
}

func newQueue(limit int) *Queue { return &Queue{limit: limit, fair: map[string][]*ticket{}} }

// Enter waits for a turn, at most until ctx ends; then its error wraps [ErrBusy] or the context's cause. leave must be
// called when the work is done.
func (a *Queue) Enter(ctx context.Context, l Lane, namespace string) (leave func(), err error) {
	began, t := time.Now(), &ticket{lane: l, namespace: namespace, turn: make(chan struct{})}
	a.mu.Lock()
	a.enqueue(t)
	a.admit()
	a.mu.Unlock()
	select {
	case <-t.turn:
	case <-ctx.Done():
		if a.cancel(t) {
			return nil, fmt.Errorf("%w: it waited %s: %w", ErrBusy, time.Since(began).Round(time.Millisecond), ctx.Err())
		}
	}
	return func() { a.finish(t) }, nil
}

// admit lets in whoever is next, as long as there are places. It expects the lock.
func (a *Queue) admit() {
	for {
		t := a.next()
		if t == nil {
			return
		}
		a.dequeue(t)
		if i := slices.Index(a.turns, t.namespace); i >= 0 { // it has had its turn: the others go before it
			a.turns = append(slices.Delete(a.turns, i, i+1), t.namespace)
		}
		a.running[t.lane]++
		close(t.turn)
	}
}

// next returns the ticket whose turn it is, or nil when none waits or there is no place.
func (a *Queue) next() *ticket {
	creations := a.running[Critical] + a.running[Fair]
	switch {
	case len(a.plain[Deletions]) > 0:
		if a.running[Deletions] < a.limit {
			return a.plain[Deletions][0]
		}
	case creations+a.running[Deletions] >= a.limit:
	case len(a.plain[Critical]) > 0:
		return a.plain[Critical][0]
	case len(a.turns) > 0:
		return a.fair[a.turns[0]][0]
	}
	return nil
}

func (a *Queue) finish(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[t.lane]--
	a.admit()
}

// cancel takes back a ticket that waits yet.
func (a *Queue) cancel(t *ticket) (waiting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-t.turn:
		return false // its turn has just come
	default:
	}
	a.dequeue(t)
	a.admit() // a deletion that gives up may have been all that creations waited for
	return true
}

// enqueue expects the lock.
func (a *Queue) enqueue(t *ticket) {
	if t.lane < Fair {
		a.plain[t.lane] = append(a.plain[t.lane], t)
		return
	}
	if len(a.fair[t.namespace]) == 0 {
		a.turns = append(a.turns, t.namespace)
	}
	a.fair[t.namespace] = append(a.fair[t.namespace], t)
}

// dequeue expects the lock.
func (a *Queue) dequeue(t *ticket) {
	same := func(other *ticket) bool { return other == t }
	if t.lane < Fair {
		a.plain[t.lane] = slices.DeleteFunc(a.plain[t.lane], same)
		return
	}
	a.fair[t.namespace] = slices.DeleteFunc(a.fair[t.namespace], same)
	if len(a.fair[t.namespace]) == 0 {
		delete(a.fair, t.namespace)
		a.turns = slices.DeleteFunc(a.turns, func(n string) bool { return n == t.namespace })
	}
}

// Counts returns how many wait and how many are at work, by lane.
func (a *Queue) Counts() (waiting, running [Lanes]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for l, tickets := range a.plain {
		waiting[l] = len(tickets)
	}
	for _, tickets := range a.fair {
		waiting[Fair] += len(tickets)
	}
	return waiting, a.running
}
