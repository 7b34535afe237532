package http2proxy

import (
	"errors"
	"io"
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/watchdog"
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
		s.endAllStreams(fault.reason)
		s.mu.Unlock()
		s.end(fault.code, fault)
	case errors.Is(err, io.EOF):
		s.mu.Lock()
		s.endAllStreams(httpproxy.ReasonClientGone)
		s.mu.Unlock()
		s.end(http2.ErrCodeNo, nil)
	default:
		s.abort(httpproxy.ReasonClientGone, err)
	}
}

// endAllStreams removes the streams that end with the connections. It needs the lock.
func (s *Session) endAllStreams(reason httpproxy.Reason) {
	s.endReason = reason
	for _, st := range s.streams {
		s.removeStream(st)
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
		s.endStream(st, reason, http2.ErrCodeInternal)
	}
	s.mu.Unlock()
	if errors.Is(err, io.EOF) {
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
	s.endAllStreams(reason)
	if !s.ending {
		s.ending, s.err = true, err
		close(s.done)
	}
	s.client.conn.Reset()
	if s.server != nil {
		s.server.conn.Reset()
	}
}

// stallCheck ends streams and connections on which nothing moves. It is called by a [watchdog.Watchdog]; a limit is
// exceeded by a quarter at most.
type stallCheck struct {
	session  *Session
	every    time.Duration
	progress uint32
	idle     time.Time // since when
}

// startStallCheck has streams and connections ended on which nothing moves.
func (s *Session) startStallCheck() *watchdog.Watchdog {
	x := &stallCheck{session: s, every: min(s.Limits.Idle, s.Limits.Stall, s.Limits.Write) / 4, idle: time.Now()}
	return watchdog.Start(x.every, x.check)
}

func (x *stallCheck) check() {
	s, now := x.session, time.Now()
	switch streams, stuck := s.expire(now, uint32(s.Limits.Stall/x.every)); {
	case stuck:
		s.abort(httpproxy.ReasonStalled, errSilent)
		return
	case streams > 0 || s.progress.Load() != x.progress:
		x.progress, x.idle = s.progress.Load(), now
	case now.Sub(x.idle) >= s.Limits.Idle:
		s.Drain()
	}
	s.settle() // its error shows again where the client is read
}

// expire resets streams that had no frame for some ticks. It returns how many there were, and whether a peer takes
// nothing of what is sent to it.
func (s *Session) expire(now time.Time, ticks uint32) (streams int, stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range []*peer{s.client, s.server} {
		if p != nil && !p.writing.IsZero() && now.Sub(p.writing) >= s.Limits.Write {
			return 0, true
		}
	}
	streams = len(s.streams)
	if s.tick++; s.ending {
		return streams, false
	}
	for _, st := range s.streams {
		if s.tick-st.tick > ticks {
			s.endStream(st, httpproxy.ReasonStalled, http2.ErrCodeCancel)
		}
	}
	return streams, false
}
