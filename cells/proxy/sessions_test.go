package proxy

import (
	"context"
	"errors"
	"testing"
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
	for range mostOfEndpoint {
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

// TestSessionsShare has many endpoints open all they may: some is free for another one.
func TestSessionsShare(t *testing.T) {
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
	if err := x.stop(t.Context(), 10*time.Millisecond); err != nil {
		t.Error(err)
	}
	if err := x.add(newSession(clientID)); !errors.Is(err, errStopped) {
		t.Errorf("a session that begins then: %v", err)
	}
	x.start()
	if err := x.add(newSession(clientID)); err != nil {
		t.Errorf("after a new start: %v", err)
	}
}
