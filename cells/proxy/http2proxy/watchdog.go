package http2proxy

import (
	"sync"
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/httpproxy"
)

// watchdog ends streams and connections on which nothing moves. It looks now and then, so that reads and writes need no deadlines of their
// own; a limit is exceeded by a half at most.
type watchdog struct {
	session *Session
	every   time.Duration

	mu       sync.Mutex // guards the fields below
	timer    *time.Timer
	stopped  bool
	running  sync.WaitGroup
	progress uint32
	idle     time.Time // since when
}

func newWatchdog(s *Session) *watchdog {
	w := &watchdog{session: s, every: min(s.Limits.Idle, s.Limits.Stall, s.Limits.Write) / 4, idle: time.Now()}
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
	stopped := w.stopped
	w.mu.Unlock()
	if stopped {
		return
	}
	w.act()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.running.Add(1)
		w.timer.Reset(w.every)
	}
}

// act looks once.
func (w *watchdog) act() {
	s, now := w.session, time.Now()
	switch streams, stuck := s.expire(now, uint32(s.Limits.Stall/w.every)); {
	case stuck:
		s.abort(httpproxy.ReasonStalled, errSilent)
		return
	case streams > 0 || s.progress.Load() != w.progress:
		w.progress, w.idle = s.progress.Load(), now
	case now.Sub(w.idle) >= s.Limits.Idle:
		s.Drain()
	}
	s.settle() // its error shows again where the client is read
}

// expire resets streams that had no frame for some ticks. It returns how many there were, and whether a peer takes nothing of what is sent to it.
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
