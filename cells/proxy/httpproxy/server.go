package httpproxy

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"porin.dev/porin/cells/proxy/bufconn"
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
	if e.active && e.answered == byProxy || !s.endIf(errUnsolicited, func() bool { return true }) {
		return
	}
	s.recordExchange(&exchange{}, Failed, ReasonUnsolicited, 0)
}

// speaksHTTP reports whether b may begin a response.
func speaksHTTP(b []byte) bool {
	const version = "HTTP/1."
	return strings.HasPrefix(version, string(b[:min(len(b), len(version))]))
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

// forwardResponse forwards the final response to the current request. No other one follows on this connection if both
// sides know that, if the body ends with the connection, or if the client may leave out the body that it announced with
// "Expect: 100-continue".
func (s *Session) forwardResponse(p *response, e *exchange) bool {
	if !s.answer(byServer) {
		return false
	}
	s.mu.Lock()
	last := s.exchange.last || s.exchange.awaits || s.draining || p.options.close || p.http10 || p.untilClose(e.toHEAD)
	s.exchange.last = last
	s.mu.Unlock()
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

// switchProtocol forwards the response 101, and from then on what the server sends, without looking at it.
func (s *Session) switchProtocol(p *response, e *exchange) bool {
	if !s.answer(byServer) {
		return false
	}
	s.recordExchange(e, Forwarded, "", http.StatusSwitchingProtocols)
	w := writer{to: s.client}
	p.writeTo(&w, false)
	if err := w.flush(); err != nil {
		s.abandon(ReasonClientGone, err)
		return false
	}
	s.server.Discard(len(p.head))
	s.mu.Lock()
	s.tunnel = true
	s.changed.Signal()
	s.mu.Unlock()
	s.forwardTunnel(s.client, s.server)
	return false
}

// forwardTunnel copies one direction of a switched protocol until its end, and passes that on.
func (s *Session) forwardTunnel(to, from *bufconn.Conn) {
	w := writer{to: to}
	if err := forwardStream(&w, from); err != nil {
		s.abandon(ReasonClientGone, err)
		return
	}
	to.CloseWrite()
}
