package dnsproxy

import (
	"context"
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
	if err != nil {
		d.refused()
		return
	}
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return
	}
	if !matches(m, d.query, d.question.end) {
		d.ignored++
		d.mu.Unlock()
		return
	}
	d.closeLocked()
	d.mu.Unlock()
	var answer []byte
	if len(m) > d.question.udp {
		answer = truncated(m, d.question.end)
	} else {
		answer = append([]byte(nil), m...)
	}
	d.handler.handleResult(d.pendingQuery, d.answered(answer, d.ignored))
}

// refusedGrace is how long an answer may still come after the server has said that the port is closed: others may have
// sent that in its name.
const refusedGrace = 200 * time.Millisecond

// refused has the exchange end soon, unless an answer comes.
func (d *udpExchange) refused() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until := time.Now().Add(refusedGrace); !d.isRefused {
		d.isRefused, d.due = true, until
	}
}

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
