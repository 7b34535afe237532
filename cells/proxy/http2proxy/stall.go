package http2proxy

import (
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/watchdog"
)

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
			s.drop(st, httpproxy.ReasonStalled, http2.ErrCodeCancel)
		}
	}
	return streams, false
}
