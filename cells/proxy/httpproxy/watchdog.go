package httpproxy

import (
	"errors"
	"sync"
	"time"
)

var errTimeout = errors.New("no byte moved for too long")

// watchdog ends a session in which no byte moves. It looks now and then, so that reads and writes need no deadlines of their own; a limit is
// exceeded by a quarter at most.
type watchdog struct {
	session *Session
	every   time.Duration

	mu       sync.Mutex // guards the fields below
	timer    *time.Timer
	stopped  bool
	running  sync.WaitGroup
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

func newWatchdog(s *Session) *watchdog {
	w := &watchdog{session: s, every: min(s.Limits.Idle, s.Limits.Stall, s.Limits.Tunnel) / 4, since: time.Now()}
	w.running.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.every, w.look)
	return w
}

// stop returns when the watchdog does nothing any more.
func (w *watchdog) stop() {
	w.mu.Lock()
	w.stopped = true
	if w.timer.Stop() {
		w.running.Done()
	}
	w.mu.Unlock()
	w.running.Wait()
}

func (w *watchdog) look() {
	defer w.running.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.session
	p, limit := s.phase()
	now := time.Now()
	if moved := s.progress.Load(); moved != w.progress || p != w.phase {
		w.progress, w.phase, w.since = moved, p, now
	}
	if w.stopped {
		return
	}
	if now.Sub(w.since) >= limit {
		s.expire(p)
	}
	w.running.Add(1)
	w.timer.Reset(w.every)
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
		s.endIf(func() bool { return !s.exchange.active })
	case phaseRequest:
		s.client.SetWriteDeadline(time.Now().Add(s.Limits.Linger))
		s.fail(ReasonStalled, errTimeout)
	default:
		s.abandon(ReasonStalled, errTimeout)
	}
}
