package httpproxy

import (
	"errors"
	"os"
	"time"

	"porin.dev/porin/cells/proxy/bufconn"
)

// exchange is one request that is forwarded, and its response. The next request is not read before both are done with.
type exchange struct {
	method, host, path string
	offer              string // protocols that the client offers to switch to
	toHEAD, toHTTP10   bool
	first              bool // on a connection that was opened for it
	last               bool // no other follows on this connection

	active                    bool
	requestDone, responseDone bool
	awaits                    bool // the client may wait for 100 before it sends the body
	answered                  answered
	interims                  int
}

// answered says who sends the final response.
type answered uint8

const (
	byNobody answered = iota
	byServer          // its response was begun
	byProxy           // whoever began it ends the session as well
)

// begin makes r the current request. last is that the client was told, or said, that no other follows.
func (s *Session) begin(r *Request) (last, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false, false
	}
	s.exchange = exchange{
		method: r.Method, host: r.Host, path: r.Path,
		toHEAD: r.Method == "HEAD", toHTTP10: r.http10,
		first:  s.exchange.method == "",
		last:   r.options.close || r.http10 || s.draining,
		active: true,
		awaits: r.expect,
	}
	if r.offer != nil {
		s.exchange.offer = string(r.offer)
	}
	return s.exchange.last, true
}

// requestDone says that the request was sent to its end.
func (s *Session) requestDone() {
	s.mu.Lock()
	s.exchange.requestDone = true
	s.exchange.active = !s.exchange.responseDone
	s.mu.Unlock()
}

// responseDone says that the response was sent to its end.
func (s *Session) responseDone() {
	s.mu.Lock()
	e := &s.exchange
	e.responseDone = true
	e.active = !e.requestDone
	last, draining := e.last, s.draining
	s.changed.Signal()
	s.mu.Unlock()
	switch {
	case last:
		s.end(nil)
	case draining: // the head had been sent before: the client may be about to send a request
		s.endWhenIdle()
	}
}

// current returns the request that the server has to answer. ok is false if there is none.
func (s *Session) current() (e exchange, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchange, s.exchange.active && !s.exchange.responseDone && !s.ending
}

// answer gives the caller alone the right to send the final response to the current request.
func (s *Session) answer(by answered) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exchange.active || s.exchange.answered != byNobody || s.ending {
		return false
	}
	s.exchange.answered = by
	return true
}

// end ends the stream to the client in order, and the connection to the server. Further bytes of the client are
// dropped, for a moment.
func (s *Session) end(err error) {
	s.endIf(err, func() bool { return true })
}

// endIf is end on a condition, which is called with the lock held. It reports whether it has begun the end.
func (s *Session) endIf(err error, condition func() bool) bool {
	s.mu.Lock()
	if s.ending || s.client == nil || !condition() {
		s.mu.Unlock()
		return false
	}
	s.ending, s.err = true, err
	server := s.server
	s.client.SetReadDeadline(time.Now().Add(s.Limits.Linger))
	s.changed.Broadcast()
	s.mu.Unlock()
	s.client.CloseWrite()
	if server != nil {
		server.Close()
	}
	return true
}

// abort closes both connections so that neither peer takes it for the end of a message.
func (s *Session) abort(err error) {
	s.mu.Lock()
	if !s.ending {
		s.ending, s.err = true, err
	}
	server := s.server
	s.changed.Broadcast()
	s.mu.Unlock()
	s.client.Reset()
	if server != nil {
		server.Reset()
	}
}

// abandon aborts the session because of the current request, if there is one, unless it is being ended in order.
func (s *Session) abandon(reason Reason, err error) {
	s.mu.Lock()
	e := s.exchange
	if e.answered == byNobody {
		s.exchange.answered = byServer
	}
	ending := s.ending || e.active && e.answered == byProxy
	s.mu.Unlock()
	if ending {
		return
	}
	if e.active && e.answered == byNobody {
		s.recordExchange(&e, Failed, reason, 0)
	}
	s.abort(err)
}

// fail ends the session because of the current request, if there is one. The client gets an answer if none was begun.
func (s *Session) fail(reason Reason, err error) {
	e, _ := s.current()
	if !s.answer(byProxy) {
		s.abandon(reason, err)
		return
	}
	s.recordExchange(&e, Failed, reason, reason.Status())
	s.reply(&Request{Method: e.method, http10: e.toHTTP10}, reason, true)
	s.end(err)
}

// setReadDeadline sets the deadline of a connection, unless the session is ending, which sets its own.
func (s *Session) setReadDeadline(c *bufconn.Conn, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		c.SetReadDeadline(t)
	}
}

// readHead returns the length of the head that the connection's buffer begins with.
func (s *Session) readHead(c *bufconn.Conn) (int, Reason) {
	for scanned := 0; ; {
		n := headEnd(c.Data(), scanned)
		if n > s.Limits.HeadBytes || n == 0 && len(c.Data()) >= s.Limits.HeadBytes {
			return 0, ReasonHeadTooLarge
		}
		if n > 0 {
			if scanned > 0 {
				s.setReadDeadline(c, time.Time{})
			}
			return n, ""
		}
		if scanned == 0 {
			s.setReadDeadline(c, time.Now().Add(s.Limits.Head))
		}
		scanned = len(c.Data())
		if err := c.Fill(s.Limits.HeadBytes); err != nil {
			return 0, headFault(err)
		}
	}
}

func headFault(err error) Reason {
	switch {
	case isEOF(err):
		return ReasonIncompleteHead
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonHeadTimeout
	case errors.Is(err, bufconn.ErrFull):
		return ReasonHeadTooLarge
	case errors.Is(err, bufconn.ErrMemory):
		return ReasonMemory
	}
	return ReasonClientGone
}
