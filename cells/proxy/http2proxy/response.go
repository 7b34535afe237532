package http2proxy

import (
	"net/http"
	"strconv"

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
		s.endStream(st, reason, http2.ErrCodeProtocol)
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

// reply answers a stream ourselves, without a body, and returns the status. A gRPC client gets its own status in the
// only header block (gRPC over HTTP/2, "Trailers-Only"), and 200. If the client has not ended the stream it is told
// that nothing more is read. It needs the lock.
func (s *Session) reply(id uint32, clientDone, grpc bool, reason httpproxy.Reason) (status int) {
	fields := make([]httpproxy.Header, 0, 5)
	if status = reason.Status(); grpc {
		fields = append(fields,
			httpproxy.Header{Name: ":status", Value: "200"},
			httpproxy.Header{Name: "content-type", Value: "application/grpc"},
			httpproxy.Header{Name: "grpc-status", Value: grpcStatus(status)},
			httpproxy.Header{Name: "grpc-message", Value: reason.Text()})
		status = http.StatusOK
	} else {
		fields = append(fields,
			httpproxy.Header{Name: ":status", Value: strconv.Itoa(status)},
			httpproxy.Header{Name: "content-length", Value: "0"})
	}
	fields = append(fields, httpproxy.Header{Name: "proxy-status", Value: proxyStatus(reason)})
	s.client.headers(id, fields, true)
	if !clientDone {
		s.client.reset(id, 0) // RFC 9113, 8.1: NO_ERROR after a whole response
	}
	return status
}

// grpcStatus is the status of gRPC for one of HTTP, as gRPC's clients would choose it.
func grpcStatus(status int) string {
	switch status {
	case http.StatusForbidden:
		return "7" // PERMISSION_DENIED
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return "14" // UNAVAILABLE
	}
	return "13" // INTERNAL
}

// proxyStatus says who has answered and why (RFC 9209).
func proxyStatus(reason httpproxy.Reason) string {
	kind := "http_request_error"
	switch reason.Status() {
	case http.StatusForbidden:
		kind = "http_request_denied"
	case http.StatusServiceUnavailable:
		kind = "destination_unavailable"
	case http.StatusBadGateway:
		kind = "http_protocol_error"
	case http.StatusGatewayTimeout:
		kind = "http_response_timeout"
	}
	if reason == httpproxy.ReasonServerClosed {
		kind = "connection_terminated"
	}
	return "porin; error=" + kind + `; details="` + string(reason) + `"`
}
