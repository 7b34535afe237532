package dnsproxy

import (
	"context"
	"sync"
	"time"
)

// udpExchange is a query that was sent to its server over UDP. No goroutine waits for the answer: the socket's owner brings it.
type udpExchange struct {
	*flight
	handler *Handler
	query   []byte

	mu      sync.Mutex // guards the fields below
	socket  Socket
	timer   *time.Timer
	forget  func() bool // has the end of ctx be of no interest
	ended   bool
	again   bool // it was sent a second time
	ignored int
}

// ask sends the query to the server over UDP. It does not wait for the answer.
func (h *Handler) ask(f *flight) {
	d := &udpExchange{flight: f, handler: h, query: f.withID()}
	if !d.begin() {
		h.conclude(f, exchanged{outcome: Unreachable})
	}
}

func (d *udpExchange) begin() bool {
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
	d.socket = socket
	d.timer = time.AfterFunc(min(limits.Repeat, limits.Timeout), d.elapsed)
	d.forget = context.AfterFunc(d.ctx, func() { d.end(Canceled) })
	return true
}

// receive takes what the server has sent: the first answer that matches ends the exchange.
func (d *udpExchange) receive(m []byte, err error) {
	if err != nil {
		d.end(Unreachable)
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
	d.close()
	d.mu.Unlock()
	var answer []byte
	if len(m) > d.question.udp {
		answer = truncated(m, d.question.end)
	} else {
		answer = append([]byte(nil), m...)
	}
	d.handler.conclude(d.flight, d.answered(answer, d.ignored))
}

// elapsed sends the query once more when no answer has come after a while, and ends the exchange at its timeout.
func (d *udpExchange) elapsed() {
	if o := d.repeat(); o != "" {
		d.end(o)
	}
}

// repeat returns why the exchange is over when the query is not to be sent again.
func (d *udpExchange) repeat() Outcome {
	limits := d.handler.config.Limits
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.again || d.ended || limits.Repeat >= limits.Timeout {
		return Timeout
	}
	d.again = true
	if _, err := d.socket.Write(d.query); err != nil {
		return Unreachable
	}
	d.timer.Reset(limits.Timeout - limits.Repeat)
	return ""
}

// end ends the exchange without an answer.
func (d *udpExchange) end(o Outcome) {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return
	}
	d.close()
	d.mu.Unlock()
	d.handler.conclude(d.flight, exchanged{ignored: d.ignored, outcome: o})
}

// close expects the lock.
func (d *udpExchange) close() {
	d.ended = true
	d.timer.Stop()
	d.forget()
	_ = d.socket.Close()
}
