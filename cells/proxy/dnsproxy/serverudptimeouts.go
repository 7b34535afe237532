package dnsproxy

import (
	"sync"
	"time"
)

// exchanges has the exchanges over UDP that are in flight, and looks at intervals for those whose time is over. A timer
// for each would have the runtime wake a thread for each.
type exchanges struct {
	every time.Duration

	mu      sync.Mutex // guards the fields below
	all     map[*udpExchange]struct{}
	running bool // a timer is
}

// checksPerLimit is how often exchanges are looked at before the first of them is due. An exchange that is due is
// handled so much later at most.
const checksPerLimit = 15

func newExchanges(l Limits) *exchanges {
	return &exchanges{every: min(l.RetransmitAfter/checksPerLimit, l.Timeout/checksPerLimit, refusedGrace/2), all: map[*udpExchange]struct{}{}}
}

func (e *exchanges) add(d *udpExchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all[d] = struct{}{}
	if !e.running {
		e.running = true
		time.AfterFunc(e.every, e.check)
	}
}

func (e *exchanges) remove(d *udpExchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, d)
}

// check looks at all exchanges, and again after a while if there are any.
func (e *exchanges) check() {
	now := time.Now()
	for _, d := range e.list() {
		d.check(now)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running = len(e.all) > 0; e.running {
		time.AfterFunc(e.every, e.check)
	}
}

func (e *exchanges) list() []*udpExchange {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*udpExchange, 0, len(e.all))
	for d := range e.all {
		all = append(all, d)
	}
	return all
}
