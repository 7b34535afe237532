package endpointmanager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/internal/fault"
)

// lane is where a piece of work waits for its turn. Lower lanes go first.
type lane int

const (
	laneDelete   lane = iota // deletions: they make room
	laneCritical             // creations that the node cannot do without
	laneFair                 // all others, a namespace at a time
	lanes
)

func (l lane) String() string { return [...]string{"delete", "critical", "fair"}[l] }

// errBusy is what a creation ends with whose caller could not wait for its turn. Nobody is refused earlier.
var errBusy = fault.New(fault.Deadline, "its turn did not come in the caller's time")

// admission bounds what is done at the same time, and says who is next.
//
// Creations share limit places with the deletions, and get none while a deletion waits. Deletions have as many places of
// their own, so that creations which hang in the kernel never hold one up. Among the namespaces of the fair lane turns go
// round: one that starts a thousand pods waits for itself, not others for it.
type admission struct {
	limit int
	waits func(lane, time.Duration) // told of each wait that ended in an admission

	mu       sync.Mutex // guards the fields below
	running  [lanes]int
	deletes  []*ticket
	critical []*ticket
	fair     map[string][]*ticket
	turns    []string // the namespaces of fair, in the order of their turns
}

// admissions keeps apart what an IPAM plugin that hangs can hold up, and what not.
type admissions struct {
	own       *admission // of endpoints whose addresses Porin gives
	delegated *admission // of those with an IPAM plugin
}

func newAdmissions(limit int) *admissions {
	return &admissions{newAdmission(limit), newAdmission(limit)}
}

func (a *admissions) of(spec Spec) *admission {
	if spec.IPAM.Type == "" {
		return a.own
	}
	return a.delegated
}

// counts are those of both.
func (a *admissions) counts() (waiting, running [lanes]int) {
	waiting, running = a.own.counts()
	moreWaiting, moreRunning := a.delegated.counts()
	for l := range lanes {
		waiting[l] += moreWaiting[l]
		running[l] += moreRunning[l]
	}
	return waiting, running
}

// ticket is one that waits. turn is closed when it has come.
type ticket struct {
	lane      lane
	namespace string
	turn      chan struct{}
}

func newAdmission(limit int) *admission {
	return &admission{limit: limit, waits: func(lane, time.Duration) {}, fair: map[string][]*ticket{}}
}

// enter waits for a turn, at most until ctx ends; then its error wraps [errBusy] or the context's cause. leave must be
// called when the work is done.
func (a *admission) enter(ctx context.Context, l lane, namespace string) (leave func(), err error) {
	began, t := time.Now(), &ticket{lane: l, namespace: namespace, turn: make(chan struct{})}
	a.mu.Lock()
	a.enqueue(t)
	a.admit()
	a.mu.Unlock()
	select {
	case <-t.turn:
	case <-ctx.Done():
		if ahead, waiting := a.giveUp(t); waiting {
			return nil, fmt.Errorf("%w: it waited %s behind %d others: %w", errBusy, time.Since(began).Round(time.Millisecond), ahead, ctx.Err())
		}
	}
	a.waits(l, time.Since(began))
	return func() { a.leave(t) }, nil
}

// admit lets in whoever is next, as long as there are places. It expects the lock.
func (a *admission) admit() {
	for {
		t := a.next()
		if t == nil {
			return
		}
		a.dequeue(t)
		a.rotate(t.namespace)
		a.running[t.lane]++
		close(t.turn)
	}
}

// next returns whose turn it is, or nil when nobody waits or there is no place.
func (a *admission) next() *ticket {
	creations := a.running[laneCritical] + a.running[laneFair]
	switch {
	case len(a.deletes) > 0:
		if a.running[laneDelete] < a.limit {
			return a.deletes[0]
		}
	case creations+a.running[laneDelete] >= a.limit:
	case len(a.critical) > 0:
		return a.critical[0]
	case len(a.turns) > 0:
		return a.fair[a.turns[0]][0]
	}
	return nil
}

func (a *admission) leave(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[t.lane]--
	a.admit()
}

// giveUp takes back a ticket that waits yet, and tells how many were before it.
func (a *admission) giveUp(t *ticket) (ahead int, waiting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-t.turn:
		return 0, false // its turn has just come
	default:
	}
	ahead = a.ahead(t)
	a.dequeue(t)
	a.admit() // a deletion that gives up may have been all that creations waited for
	return ahead, true
}

// ahead expects the lock.
func (a *admission) ahead(t *ticket) int {
	switch t.lane {
	case laneDelete:
		return slices.Index(a.deletes, t)
	case laneCritical:
		return len(a.deletes) + slices.Index(a.critical, t)
	}
	mine := slices.Index(a.fair[t.namespace], t)
	ahead := len(a.deletes) + len(a.critical) + mine
	for namespace, others := range a.fair {
		if namespace != t.namespace {
			ahead += min(len(others), mine+1)
		}
	}
	return ahead
}

// enqueue expects the lock.
func (a *admission) enqueue(t *ticket) {
	switch t.lane {
	case laneDelete:
		a.deletes = append(a.deletes, t)
	case laneCritical:
		a.critical = append(a.critical, t)
	default:
		if len(a.fair[t.namespace]) == 0 {
			a.turns = append(a.turns, t.namespace)
		}
		a.fair[t.namespace] = append(a.fair[t.namespace], t)
	}
}

// dequeue expects the lock.
func (a *admission) dequeue(t *ticket) {
	same := func(other *ticket) bool { return other == t }
	switch t.lane {
	case laneDelete:
		a.deletes = slices.DeleteFunc(a.deletes, same)
		return
	case laneCritical:
		a.critical = slices.DeleteFunc(a.critical, same)
		return
	}
	a.fair[t.namespace] = slices.DeleteFunc(a.fair[t.namespace], same)
	if len(a.fair[t.namespace]) == 0 {
		delete(a.fair, t.namespace)
		a.turns = slices.DeleteFunc(a.turns, func(n string) bool { return n == t.namespace })
	}
}

// rotate puts a namespace that has had its turn behind the others. It expects the lock.
func (a *admission) rotate(namespace string) {
	if i := slices.Index(a.turns, namespace); i >= 0 {
		a.turns = append(slices.Delete(a.turns, i, i+1), namespace)
	}
}

// counts returns how many wait and how many are at work, by lane.
func (a *admission) counts() (waiting, running [lanes]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting[laneDelete], waiting[laneCritical] = len(a.deletes), len(a.critical)
	for _, tickets := range a.fair {
		waiting[laneFair] += len(tickets)
	}
	return waiting, a.running
}

// laneOf is the lane of a creation.
func (c Config) laneOf(pod Pod) lane {
	if slices.Contains(c.CriticalNamespaces, pod.Namespace) && pod.Namespace != "" ||
		slices.Contains(c.CriticalPriorityClasses, pod.PriorityClass) && pod.PriorityClass != "" {
		return laneCritical
	}
	return laneFair
}
