package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/proxy/quota"
	"porin.dev/porin/internal/fault"
)

// An idle session takes up to 32 KiB. Connections above the limits, or an endpoint's quota, are reset.
const (
	maxOfEndpoint = 8192
	maxSessions   = 32768
)

var (
	errTooMany = fault.New(fault.Exhausted, "too many connections through the proxy")
	errDenied  = fault.New(fault.Conflict, "no policy accepts the connection")
	errRemoved = errors.New("an endpoint of the connection is being removed")
	errStopped = errors.New("the proxy stops")
)

// sessions are the connections that are being served.
type sessions struct {
	mu       sync.Mutex // guards the fields below
	open     map[*session]struct{}
	quota    quota.Quota
	draining bool // sessions that begin now are soon drained
	closed   bool
}

// drainSoon is how long a connection that is opened while others are drained has for further requests: a client that
// were told at once to connect again might not have sent one.
const drainSoon = time.Second

// add returns an error when no further session may begin.
func (x *sessions) add(s *session) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return errStopped
	}
	if x.open == nil {
		x.open, x.quota = map[*session]struct{}{}, quota.New(maxOfEndpoint, maxSessions)
	}
	if x.quota.Acquire(s.endpoint(), 1) != quota.Acquired {
		return errTooMany
	}
	x.open[s] = struct{}{}
	if x.draining {
		time.AfterFunc(drainSoon, s.drain)
	}
	return nil
}

func (x *sessions) remove(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, s)
	x.quota.Release(s.endpoint(), 1)
	close(s.done)
}

// list returns the sessions that f reports.
func (x *sessions) list(f func(*session) bool) (list []*session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.open {
		if f(s) {
			list = append(list, s)
		}
	}
	return list
}

func (x *sessions) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.open)
}

// end ends sessions for a cause, and waits for them until ctx ends.
func end(ctx context.Context, list []*session, cause error) error {
	for _, s := range list {
		s.cancel(cause)
	}
	return wait(ctx, list)
}

func wait(ctx context.Context, list []*session) error {
	for _, s := range list {
		select {
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// startDrain drains all sessions, and new ones soon after their begin. It returns the sessions that began before.
func (x *sessions) startDrain() []*session {
	x.mu.Lock()
	x.draining = true
	list := slices.Collect(maps.Keys(x.open))
	x.mu.Unlock()
	for _, s := range list {
		s.drain()
	}
	return list
}

// finish ends those sessions of a list that are left, and returns how many these are.
func finish(ctx context.Context, list []*session) (cut int, err error) {
	list = slices.DeleteFunc(list, func(s *session) bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	})
	return len(list), end(ctx, list, errStopped)
}

// stop lets requests that are being served come to their end within the time, ends all others, and lets no session
// begin.
func (x *sessions) stop(ctx context.Context, within time.Duration) (cut int, err error) {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	list := x.startDrain()
	drained, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if wait(drained, list) == nil {
		return 0, nil
	}
	return finish(ctx, list)
}

// start lets sessions begin again.
func (x *sessions) start() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.draining, x.closed = false, false
}

// decideAgain ends what no policy accepts any more.
func (x *sessions) decideAgain() {
	for _, s := range x.list(func(*session) bool { return true }) {
		if _, err := s.decide(); err != nil {
			s.cancel(err)
		}
	}
}
