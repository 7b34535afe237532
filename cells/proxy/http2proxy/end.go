package http2proxy

import (
	"errors"
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/httpproxy"
)

var errSilent = errors.New("a peer took nothing for too long")

// clientEnded ends the session because of the client.
func (s *Session) clientEnded(err error) {
	var fault *connError
	switch {
	case s.isEnding():
	case errors.As(err, &fault):
		s.mu.Lock()
		if !s.ending && len(s.streams) == 0 {
			s.recordStream(&stream{}, httpproxy.Refused, fault.reason, 0)
		}
		s.dropAll(fault.reason)
		s.mu.Unlock()
		s.end(fault.code, fault)
	case isEOF(err):
		s.mu.Lock()
		s.dropAll(httpproxy.ReasonClientGone)
		s.mu.Unlock()
		s.end(http2.ErrCodeNo, nil)
	default:
		s.abort(httpproxy.ReasonClientGone, err)
	}
}

// dropAll forgets the streams that end with the connections. It needs the lock.
func (s *Session) dropAll(reason httpproxy.Reason) {
	s.endReason = reason
	for _, st := range s.streams {
		s.forget(st)
		s.recordUnanswered(st, reason)
	}
}

// serverEnded ends the session because of the server. Requests that were not answered are answered, other ones are
// reset.
func (s *Session) serverEnded(err error) {
	reason, code := httpproxy.ReasonServerClosed, http2.ErrCodeNo
	var fault *connError
	if errors.As(err, &fault) {
		code = fault.code
		if reason = fault.reason; reason != httpproxy.ReasonServerNotHTTP2 {
			reason = httpproxy.ReasonResponse
		}
	}
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return
	}
	if fault != nil && reason != httpproxy.ReasonServerNotHTTP2 {
		s.server.goAway(0, code, nil)
	}
	s.endReason = reason
	for _, st := range s.streams {
		s.drop(st, reason, http2.ErrCodeInternal)
	}
	s.mu.Unlock()
	if isEOF(err) {
		err = nil
	}
	s.end(http2.ErrCodeNo, err)
}

// end ends the connection to the client in order, and the one to the server. Further bytes of the client are dropped,
// for a moment.
func (s *Session) end(code http2.ErrCode, err error) {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return
	}
	s.ending, s.err = true, err
	if !s.final || s.deciding != 0 || code != http2.ErrCodeNo {
		s.client.goAway(s.lastServed(), code, nil)
	}
	until := time.Now().Add(s.Limits.Linger)
	s.client.conn.SetDeadline(until)
	s.flushLocked(s.client, 0)
	if s.server != nil {
		s.server.conn.SetWriteDeadline(until)
		s.flushLocked(s.server, 0)
	}
	close(s.done)
	s.mu.Unlock()
	s.client.conn.CloseWrite()
	if s.server != nil {
		s.server.conn.Close()
	}
}

// lastServed is the last stream that was answered, or that may have reached the server. It needs the lock.
func (s *Session) lastServed() uint32 {
	last := min(s.lastID, s.accepted)
	if s.deciding != 0 {
		return min(last, max(s.deciding, 2)-2) // streams of clients have odd numbers
	}
	return last
}

// abort closes both connections at once, and so that no peer takes it for an end in order.
func (s *Session) abort(reason httpproxy.Reason, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropAll(reason)
	if !s.ending {
		s.ending, s.err = true, err
		close(s.done)
	}
	s.client.conn.Reset()
	if s.server != nil {
		s.server.conn.Reset()
	}
}

// maxLinger bounds what is dropped at the end.
const maxLinger = 1 << 20

// linger drops what the client still sends after the end of our stream: to close before would reset the connection, and
// the client might lose our answers.
func (s *Session) linger() {
	c := s.client.conn
	for dropped := 0; dropped < maxLinger; {
		dropped += len(c.Data())
		c.Discard(len(c.Data()))
		if err := c.Fill(0); err != nil {
			return
		}
	}
}
