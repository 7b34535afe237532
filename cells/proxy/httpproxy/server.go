package httpproxy

import (
	"bytes"
	"errors"
	"net/http"
	"sync"
)

var responses = sync.Pool{New: func() any { return &response{fields: make([]field, 0, 32)} }}

func (p *response) release() {
	*p = response{fields: p.fields[:0]}
	responses.Put(p)
}

var (
	errUnsolicited = errors.New("the server sent something that no request asked for")
	errResponse    = errors.New("the server's response is not valid HTTP/1.1")
)

// serveServer forwards responses until the connection to the server ends.
func (s *Session) serveServer() {
	for s.serveResponse() {
	}
}

// serveResponse waits for one response and forwards it. It reports whether another one may follow.
func (s *Session) serveResponse() bool {
	c := s.server
	if len(c.Data()) == 0 {
		if err := c.Fill(0); err != nil {
			s.serverFailed(err)
			return false
		}
	}
	e, ok := s.current()
	if !ok {
		s.unsolicited(&e)
		return false
	}
	if !speaksHTTP(c.Data()) {
		s.fail(ReasonServerNotHTTP, errResponse)
		return false
	}
	n, reason := s.readHead(c)
	if reason != "" {
		s.fail(ReasonResponse, errResponse)
		return false
	}
	p := responses.Get().(*response)
	defer p.release()
	reason = p.parse(c.Data()[:n], s.Limits.Headers, e.toHTTP10)
	if reason == "" && p.status == http.StatusSwitchingProtocols && !p.accepts(e.offer) {
		reason = ReasonUpgrade
	}
	switch {
	case reason != "":
		s.fail(reason, errResponse)
		return false
	case p.status == http.StatusSwitchingProtocols:
		return s.switchProtocol(p, &e)
	case p.interim():
		return s.forwardInterim(p, &e)
	}
	return s.forwardResponse(p, &e)
}

// unsolicited ends the connection, in order, since what the server sent between requests could be taken for the
// response to the next one.
func (s *Session) unsolicited(e *exchange) {
	if e.active && e.answered == byProxy || !s.endIf(func() bool { s.keepError(errUnsolicited); return true }) {
		return
	}
	s.recordExchange(&exchange{}, Failed, ReasonUnsolicited, 0)
}

// speaksHTTP reports whether b may begin a response.
func speaksHTTP(b []byte) bool {
	const version = "HTTP/1."
	n := min(len(b), len(version))
	return bytes.Equal(b[:n], []byte(version)[:n])
}

// serverFailed handles the end of the server's stream, or of its connection, where a response could begin.
func (s *Session) serverFailed(err error) {
	e, ok := s.current()
	switch {
	case e.active && e.answered == byProxy:
	case ok && e.first:
		s.fail(ReasonServerClosed, err)
	case ok:
		// The server may have closed the connection before it saw the request. Without an answer the client may try again, as
		// it would without us.
		s.recordExchange(&e, Failed, ReasonServerClosed, 0)
		s.end(err)
	case isEOF(err):
		s.end(nil)
	default:
		s.abandon(ReasonServerClosed, err)
	}
}

// forwardInterim forwards a response 1xx, which another one follows. A client of HTTP/1.0 does not know them.
func (s *Session) forwardInterim(p *response, e *exchange) bool {
	s.mu.Lock()
	s.exchange.interims++
	tooMany := s.exchange.interims > s.Limits.Interims
	if p.status == http.StatusContinue {
		s.exchange.awaits = false
	}
	s.mu.Unlock()
	if tooMany {
		s.fail(ReasonTooManyInterims, errResponse)
		return false
	}
	if !e.toHTTP10 {
		w := writer{to: s.client}
		p.writeTo(&w, false)
		if err := w.flush(); err != nil {
			s.abandon(ReasonClientGone, err)
			return false
		}
	}
	s.server.Discard(len(p.head))
	return true
}

// forwardResponse forwards the final response to the current request.
func (s *Session) forwardResponse(p *response, e *exchange) bool {
	last, ok := s.beginResponse(p)
	if !ok {
		return false
	}
	s.recordExchange(e, Forwarded, "", p.status)
	w := writer{to: s.client}
	p.writeTo(&w, last) // its error shows again below
	s.server.Discard(len(p.head))
	var err error
	switch {
	case p.bodyless(e.toHEAD):
		err = w.flush()
	case p.untilClose(e.toHEAD):
		err = forwardStream(&w, s.server)
	default:
		err = p.framing.forward(&w, s.server, &s.Limits)
	}
	if err != nil {
		s.abandon(ReasonServerClosed, err) // or the client is gone
		return false
	}
	if len(s.server.Data()) > 0 {
		s.unsolicited(e)
		return false
	}
	s.responseDone()
	return !last
}

// beginResponse takes the right to answer. last is that no other response follows on this connection: that both sides
// know, that the body ends with the connection, or that the client may leave out the body which it announced with
// "Expect: 100-continue".
func (s *Session) beginResponse(p *response) (last, ok bool) {
	if !s.answer(byServer) {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &s.exchange
	e.last = e.last || e.awaits || s.draining || p.options.close || p.http10 || p.untilClose(e.toHEAD)
	return e.last, true
}
