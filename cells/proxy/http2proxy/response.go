package http2proxy

import (
	"net/http"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/httpproxy"
)

// serverHeaders handles a header block of the server: a response, an interim one, or trailers.
func (s *Session) serverHeaders(b *block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[b.stream]
	switch {
	case b.stream > s.lastID:
		return protocolError
	case st == nil: // reset meanwhile
		return s.server.budget.spend(1)
	}
	st.tick = s.tick
	reason := s.responseFault(st, b)
	if reason != "" {
		s.drop(st, reason, http2.ErrCodeProtocol)
		return nil
	}
	s.client.headers(st.id, b.fields, b.end)
	s.client.budget.refill(1)
	if b.end {
		s.endSide(st, false)
	}
	return nil
}

// responseFault checks a header block, and notes what it says. It needs the lock.
func (s *Session) responseFault(st *stream, b *block) httpproxy.Reason {
	if st.serverDone {
		return httpproxy.ReasonResponse
	}
	if st.answered {
		if !b.trailers() || st.responseLeft > 0 {
			return httpproxy.ReasonResponse
		}
		return ""
	}
	status, ok := b.response()
	switch {
	case !ok || status < 200 && b.end:
		return httpproxy.ReasonResponse
	case status == http.StatusSwitchingProtocols: // RFC 9113, 8.6
		return httpproxy.ReasonUpgrade
	case status < 200:
		if st.interims++; st.interims > s.Limits.Interims {
			return httpproxy.ReasonTooManyInterims
		}
		return ""
	}
	if st.method != http.MethodHead && status != http.StatusNotModified {
		if st.responseLeft = b.length; b.end && b.length > 0 {
			return httpproxy.ReasonResponse
		}
	}
	st.answered = true
	s.client.budget.refill(costOfReset)
	s.recordStream(st, httpproxy.Forwarded, "", status)
	return ""
}
