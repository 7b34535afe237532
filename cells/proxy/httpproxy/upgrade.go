package httpproxy

import (
	"net/http"

	"porin.dev/porin/cells/proxy/bufconn"
)

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
