package http2proxy

import (
	"context"
	"errors"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// clientHeaders handles a header block of the client: a request, or the trailers of one.
func (s *Session) clientHeaders(ctx context.Context, b *block) error {
	s.mu.Lock()
	st, isNew := s.streams[b.stream], b.stream > s.lastID
	switch {
	case isNew:
		s.lastID = b.stream
		refused := b.stream > s.accepted
		full := len(s.streams) >= s.Limits.Streams
		if !refused && !full {
			s.deciding = b.stream
		}
		s.mu.Unlock()
		switch {
		case refused: // the GOAWAY says so
			s.mu.Lock()
			defer s.mu.Unlock()
			s.recordUnended(b.stream, b.end)
			return nil
		case full:
			r, _ := b.request()
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.refuse(b, &r, httpproxy.ReasonTooManyStreams)
		}
		return s.request(ctx, b)
	case st != nil && st.clientDone:
		s.cancel(st, httpproxy.ReasonProtocol, http2.ErrCodeStreamClosed)
	case st != nil:
		s.requestTrailers(st, b)
	default:
		defer s.mu.Unlock()
		switch {
		case !s.receiveLate(b.stream, b.end): // the client has ended it, or has left out its number
			return protocolError
		case !b.end:
			return s.client.budget.spend(1)
		}
		return nil
	}
	s.mu.Unlock()
	return nil
}

// requestTrailers needs the lock.
func (s *Session) requestTrailers(st *stream, b *block) {
	switch {
	case !b.trailers():
		s.cancel(st, httpproxy.ReasonTrailer, http2.ErrCodeProtocol)
	case st.requestLeft > 0:
		s.cancel(st, httpproxy.ReasonLengthMismatch, http2.ErrCodeProtocol)
	default:
		st.tick = s.tick
		s.server.headers(st.id, b.fields, true)
		s.endSide(st, true)
	}
}

// refuse refuses a stream that the server does not see. The client may try again. It needs the lock.
func (s *Session) refuse(b *block, r *httpproxy.Request, reason httpproxy.Reason) error {
	s.client.reset(b.stream, http2.ErrCodeRefusedStream)
	s.recordUnended(b.stream, b.end)
	s.recordStream(&stream{method: r.Method, host: r.Host, path: r.Path}, httpproxy.Refused, reason, 0)
	return s.client.budget.spend(costOfReset)
}

// request decides about a request and forwards it.
func (s *Session) request(ctx context.Context, b *block) error {
	r, reason := b.request()
	if reason == "" && b.end && b.length > 0 {
		reason = httpproxy.ReasonLengthMismatch
	}
	switch reason {
	case "":
	case httpproxy.ReasonPseudoHeader, httpproxy.ReasonHeader, httpproxy.ReasonLength, httpproxy.ReasonLengthMismatch:
		s.record(&r, httpproxy.Refused, reason, 0)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deciding = 0
		s.client.reset(b.stream, http2.ErrCodeProtocol)
		s.recordUnended(b.stream, b.end)
		return s.client.budget.spend(1)
	default:
		s.answer(b, &r, httpproxy.Refused, reason)
		return nil
	}
	if reason := s.Decide(&r); reason != "" {
		s.answer(b, &r, httpproxy.Denied, reason)
		return nil
	}
	dialled, err := s.connect(ctx)
	if err != nil && !s.isEnding() {
		reason := httpproxy.ReasonDial
		if errors.Is(err, bufconn.ErrMemory) {
			reason = httpproxy.ReasonMemory
		}
		s.answer(b, &r, httpproxy.Failed, reason)
		s.end(http2.ErrCodeNo, err)
		return errEnded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		s.recordStream(&stream{method: r.Method, host: r.Host, path: r.Path}, httpproxy.Failed, s.endReason, 0)
		return errEnded
	}
	s.deciding = 0
	if dialled {
		// The server is read when the stream is there, so that what it says, HTTP/2 or not, or its end, answers this request.
		s.running.Go(func() {
			s.limitRead(s.server, s.Limits.Handshake)
			s.serveServer()
		})
	}
	if s.newStream(b, &r) == nil {
		return s.refuse(b, &r, httpproxy.ReasonMemory)
	}
	s.client.budget.refill(1)
	s.server.headers(b.stream, b.fields, b.end)
	return nil
}

// answer replies to a request that is not forwarded.
func (s *Session) answer(b *block, r *httpproxy.Request, verdict httpproxy.Verdict, reason httpproxy.Reason) {
	s.mu.Lock()
	s.deciding = 0
	status := s.reply(b.stream, b.end, b.grpc, reason)
	s.recordUnended(b.stream, b.end)
	s.mu.Unlock()
	s.record(r, verdict, reason, status)
}

// connect dials the server at the first request, and begins the connection with the client's requests so far. It
// reports whether it did: then no goroutine reads from the server yet.
func (s *Session) connect(ctx context.Context) (bool, error) {
	if s.server != nil {
		return false, nil
	}
	if err := s.settle(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Dial)
	conn, err := s.Dial(ctx)
	cancel()
	if err != nil {
		return false, err
	}
	p := newPeer(bufconn.New(conn, &s.progress, s.client.conn.Memory))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		conn.Close()
		return false, errEnded
	}
	p.room()
	p.out = append(p.out, http2.ClientPreface...)
	p.settings(append([]http2.Setting{{ID: http2.SettingEnablePush}}, s.settingsForServer...), false)
	p.credit(0, int(s.credit))
	if p.err != nil {
		p.conn.Close()
		p.clear()
		return false, p.err
	}
	s.server = p
	return true, nil
}
