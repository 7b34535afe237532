package dnsproxy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// udpExchange is a query that was sent to its server over UDP. No goroutine waits for the answer: the socket's owner
// brings it.
type udpExchange struct {
	*pendingQuery
	handler *Handler
	query   []byte

	mu            sync.Mutex // guards the fields below
	socket        Socket
	due           time.Time   // when it is sent again or is over
	stopAfterFunc func() bool // stops watching the end of ctx
	ended         bool
	retransmitted bool // once
	ignored       int

	isRefused bool // the server has said so
}

// forwardUDP sends the query to the server over UDP. It does not wait for the answer.
func (h *Handler) forwardUDP(f *pendingQuery) {
	d := &udpExchange{pendingQuery: f, handler: h, query: f.withID()}
	if !d.start() {
		h.handleResult(f, serverResult{outcome: Unreachable})
	}
}

func (d *udpExchange) start() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	socket, err := d.handler.config.Open(d.Query, d.receive)
	if err != nil {
		return false
	}
	if _, err := socket.Write(d.query); err != nil {
		d.ended = true
		_ = socket.Close()
		return false
	}
	limits := d.handler.config.Limits
	d.socket, d.due = socket, d.begin.Add(min(limits.RetransmitAfter, limits.Timeout))
	d.stopAfterFunc = context.AfterFunc(d.ctx, func() { d.end(Canceled) })
	d.handler.exchanges.add(d)
	return true
}

// receive takes what the server has sent: the first answer that matches ends the exchange.
func (d *udpExchange) receive(m []byte, err error) {
	d.mu.Lock()
	if d.ended || err != nil || !matches(m, d.query, d.question.end) {
		switch {
		case d.ended:
		case err == nil:
			d.ignored++
		case !d.isRefused:
			d.isRefused, d.due = true, time.Now().Add(refusedGrace)
		}
		d.mu.Unlock()
		return
	}
	d.closeLocked()
	d.mu.Unlock()
	answer := slices.Clone(m)
	if len(m) > d.question.udp {
		answer = truncated(m, d.question.end)
	}
	d.handler.handleResult(d.pendingQuery, d.answered(answer, d.ignored))
}

// refusedGrace is how long an answer may still come after the server has said that the port is closed: others may have
// sent that in its name.
const refusedGrace = 200 * time.Millisecond

// check sends the query once more when no answer has come after a while, and ends the exchange at its timeout.
func (d *udpExchange) check(now time.Time) {
	if o := d.retransmit(now); o != "" {
		d.end(o)
	}
}

// retransmit returns why the exchange is over, if it is.
func (d *udpExchange) retransmit(now time.Time) Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	limits := d.handler.config.Limits
	switch {
	case d.ended || now.Before(d.due):
		return ""
	case d.isRefused:
		return Unreachable
	case d.retransmitted || limits.RetransmitAfter >= limits.Timeout:
		return Timeout
	}
	d.retransmitted, d.due = true, d.begin.Add(limits.Timeout)
	if _, err := d.socket.Write(d.query); err != nil {
		return Unreachable
	}
	return ""
}

// end ends the exchange without an answer.
func (d *udpExchange) end(o Outcome) {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return
	}
	d.closeLocked()
	d.mu.Unlock()
	d.handler.handleResult(d.pendingQuery, serverResult{ignored: d.ignored, outcome: o})
}

func (d *udpExchange) closeLocked() {
	d.ended = true
	d.stopAfterFunc()
	d.handler.exchanges.remove(d)
	_ = d.socket.Close()
}

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
	e.mu.Lock()
	all := slices.Collect(maps.Keys(e.all))
	e.mu.Unlock()
	now := time.Now()
	for _, d := range all {
		d.check(now)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running = len(e.all) > 0; e.running {
		time.AfterFunc(e.every, e.check)
	}
}
