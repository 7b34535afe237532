package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newSession(endpoint uint16) *session {
	_, cancel := context.WithCancelCause(context.Background())
	return &session{connection: &connection{opener: Opener{Endpoint: endpoint}}, cancel: cancel, drain: func() {}, done: make(chan struct{})}
}

// TestSessionsLimit has one endpoint open all it may: others are not affected.
func TestSessionsLimit(t *testing.T) {
	var x sessions
	var last *session
	for range maxOfEndpoint {
		last = newSession(clientID)
		if err := x.add(last); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.add(newSession(clientID)); !errors.Is(err, errTooMany) {
		t.Errorf("one more: %v", err)
	}
	if err := x.add(newSession(serverID)); err != nil {
		t.Errorf("another endpoint: %v", err)
	}
	x.remove(last)
	if err := x.add(newSession(clientID)); err != nil {
		t.Errorf("in place of one that has ended: %v", err)
	}
}

// TestSessionsQuota has many endpoints open all they may: some is free for another one.
func TestSessionsQuota(t *testing.T) {
	var x sessions
	for endpoint := range uint16(50) {
		for x.add(newSession(endpoint+1)) == nil {
		}
	}
	if err := x.add(newSession(100)); err != nil {
		t.Errorf("one more endpoint, after %d sessions: %v", x.count(), err)
	}
}

// TestSessionsStop waits for what drains, and ends what does not.
func TestSessionsStop(t *testing.T) {
	var x sessions
	drains, stays := newSession(clientID), newSession(serverID)
	drains.drain = func() { x.remove(drains) }
	stays.cancel = func(err error) {
		if !errors.Is(err, errStopped) {
			t.Errorf("ended for %v", err)
		}
		x.remove(stays)
	}
	for _, s := range []*session{drains, stays} {
		if err := x.add(s); err != nil {
			t.Fatal(err)
		}
	}
	if cut, err := x.stop(t.Context(), 10*time.Millisecond); cut != 1 || err != nil {
		t.Errorf("%d were cut, %v; want one", cut, err)
	}
	if err := x.add(newSession(clientID)); !errors.Is(err, errStopped) {
		t.Errorf("a session that begins then: %v", err)
	}
	x.start()
	if err := x.add(newSession(clientID)); err != nil {
		t.Errorf("after a new start: %v", err)
	}
}

// TestSessionsDrain: open sessions are drained at once, and later ones soon. The latter are not waited for, and not
// ended.
func TestSessionsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x sessions
		open := func(endpoint uint16) (s *session, drained *atomic.Bool) {
			s, drained = newSession(endpoint), new(atomic.Bool)
			s.drain = func() { drained.Store(true) }
			if err := x.add(s); err != nil {
				t.Fatal(err)
			}
			return s, drained
		}
		ends, drained := open(clientID)
		stays, _ := open(serverID)
		stays.cancel = func(error) { x.remove(stays) }
		list := x.startDrain()
		if !drained.Load() || len(list) != 2 {
			t.Errorf("drained is %v, and there are %d sessions, want 2", drained.Load(), len(list))
		}
		later, drained := open(clientID)
		later.cancel = func(err error) { t.Errorf("a session that was opened later is ended for %v", err) }
		if drained.Load() {
			t.Error("a new session is drained before it may have had a request")
		}
		time.Sleep(drainSoon)
		synctest.Wait()
		if !drained.Load() {
			t.Error("a new session is not drained")
		}
		x.remove(ends)
		if cut, err := finish(t.Context(), list); cut != 1 || err != nil {
			t.Errorf("%d were cut, %v; want one", cut, err)
		}
		if n := x.count(); n != 1 {
			t.Errorf("%d are left, want the later one", n)
		}
	})
}
