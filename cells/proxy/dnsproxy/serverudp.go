package dnsproxy

import (
	"context"
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
	timer         *time.Timer // ends the exchange
	stopAfterFunc func() bool // stops watching the end of ctx
	ended         bool
}

// forwardUDP sends the query to the server over UDP. It does not wait for the answer.
func (h *Handler) forwardUDP(f *pendingQuery) {
	d := &udpExchange{pendingQuery: f, handler: h, query: f.withID()}
	if !d.start() {
		h.handleResult(f, result{outcome: Unreachable})
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
	d.socket = socket
	d.timer = time.AfterFunc(d.handler.config.Limits.Timeout-time.Since(d.begin), func() { d.end(Timeout) })
	d.stopAfterFunc = context.AfterFunc(d.ctx, func() { d.end(Canceled) })
	return true
}

// receive takes what the server has sent: the first answer that matches ends the exchange.
func (d *udpExchange) receive(m []byte) {
	d.mu.Lock()
	if d.ended || !matches(m, d.query, d.question.end) {
		d.mu.Unlock()
		return
	}
	d.closeLocked()
	d.mu.Unlock()
	answer := slices.Clone(m)
	if len(m) > d.question.udp {
		answer = truncated(m, d.question.end)
	}
	d.handler.handleResult(d.pendingQuery, d.answered(answer))
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
	d.handler.handleResult(d.pendingQuery, result{outcome: o})
}

func (d *udpExchange) closeLocked() {
	d.ended = true
	d.timer.Stop()
	d.stopAfterFunc()
	_ = d.socket.Close()
}
