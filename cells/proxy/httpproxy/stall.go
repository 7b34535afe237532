package httpproxy

import (
	"errors"
	"time"

	"porin.dev/porin/cells/proxy/watchdog"
)

var errTimeout = errors.New("no byte moved for too long")

// stallCheck ends a session in which no byte moves. It is called by a [watchdog.Watchdog]; a limit is exceeded by a
// quarter at most.
type stallCheck struct {
	session  *Session
	progress uint32
	phase    phase
	since    time.Time // neither changed since
}

type phase uint8

const (
	phaseIdle phase = iota
	phaseRequest
	phaseTunnel
)

// startStallCheck has the session ended when no byte moves.
func (s *Session) startStallCheck() *watchdog.Watchdog {
	x := &stallCheck{session: s, since: time.Now()}
	return watchdog.Start(min(s.Limits.Idle, s.Limits.Stall, s.Limits.Tunnel)/4, x.check)
}

func (x *stallCheck) check() {
	s, now := x.session, time.Now()
	p, limit := s.phase()
	if moved := s.progress.Load(); moved != x.progress || p != x.phase {
		x.progress, x.phase, x.since = moved, p, now
	}
	if now.Sub(x.since) >= limit {
		s.expire(p)
	}
}

func (s *Session) phase() (phase, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.tunnel:
		return phaseTunnel, s.Limits.Tunnel
	case s.exchange.active:
		return phaseRequest, s.Limits.Stall
	}
	return phaseIdle, s.Limits.Idle
}

// expire ends a session that was too long in a phase.
func (s *Session) expire(p phase) {
	switch p {
	case phaseIdle:
		s.endIf(nil, func() bool { return !s.exchange.active })
	case phaseRequest:
		s.client.SetWriteDeadline(time.Now().Add(s.Limits.Linger))
		s.fail(ReasonStalled, errTimeout)
	default:
		s.abandon(ReasonStalled, errTimeout)
	}
}
