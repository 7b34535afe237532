package store

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/supervisor"
)

// health is whether the store answered the last calls.
type health struct {
	mu   sync.Mutex // guards last
	last v1.StoreStatus
}

// observe records how a call has ended. One that its caller ended says nothing of the store.
func (h *health) observe(err error, now time.Time) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errNotRunning) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	answered := !errors.Is(err, ErrUnavailable)
	if answered != h.last.Reachable || h.last.Since.IsZero() {
		h.last.Reachable, h.last.Since = answered, now
	}
	if answered {
		h.last.LastAnswer = now
	} else {
		h.last.LastError, h.last.LastErrorTime = reasonOf(err).Error(), now
	}
}

func (h *health) status() v1.StoreStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// reporter is the store's part of GET /v1/status.
type reporter struct {
	service *service
	probing chan struct{} // holds a token while a report asks the store
}

func newReporter(s *service) *reporter { return &reporter{s, make(chan struct{}, 1)} }

// recent is how old the last answer or failure in a report may be. An idle node asks the store less often.
const recent = 10 * time.Second

// Report implements server.StatusReporter.
func (r *reporter) Report(status *v1.Status) {
	now := r.current()
	status.Store = &now
}

// Condition implements supervisor.HealthReporter: a store that does not answer is waited for.
func (r *reporter) Condition() supervisor.Condition {
	if now := r.current(); !now.Reachable && !now.Since.IsZero() {
		return supervisor.Condition{Cell: "store", State: supervisor.Degraded, Reason: now.Location + " is unreachable: " + now.LastError}
	}
	return supervisor.Condition{Cell: "store", State: supervisor.OK}
}

// current probes the store when there was no call lately, and waits a second at most.
func (r *reporter) current() v1.StoreStatus {
	if now := r.service.health.status(); time.Since(now.LastAnswer) > recent && time.Since(now.LastErrorTime) > recent {
		r.probe()
	}
	now := r.service.health.status()
	now.Location = r.service.backend.location()
	return now
}

// probe does not wait for a probe of another report.
func (r *reporter) probe() {
	select {
	case r.probing <- struct{}{}:
		defer func() { <-r.probing }()
		_ = r.service.probe(context.Background())
	default:
	}
}

// probeTime is how long a probe waits for an answer.
const probeTime = time.Second

// probeKey is a key that nobody writes.
const probeKey = "doctor/probe"

// probe asks the store something, and returns nil when it answers.
func (s *service) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, errNoAnswer)
	defer cancel()
	_, err := s.Get(ctx, probeKey)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
