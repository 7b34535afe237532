package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of a lease's time.
const (
	minTTL = time.Second
	maxTTL = 24 * time.Hour
)

// lease is a lease that a goroutine renews.
type lease struct {
	service *service
	id      int64
	lost    chan struct{}
	cease   context.CancelFunc // renews it no more
	ceased  chan struct{}      // closed when that is so
}

// Lease implements [Store].
func (s *service) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	var fault error
	if ttl < minTTL || ttl > maxTTL {
		fault = fmt.Errorf("%w: its time is not from %s to %s", ErrInvalid, minTTL, maxTTL)
	}
	l := &lease{service: s, lost: make(chan struct{}), ceased: make(chan struct{})}
	err := s.call(ctx, "lease", ttl.String(), fault, func(ctx context.Context) error {
		asked := s.boot()
		id, granted, err := s.backend.grant(ctx, ttl.Truncate(time.Second)+roundUp(ttl))
		if err != nil {
			return err
		}
		l.id = id
		return l.begin(asked+granted, granted)
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// roundUp is the second that a time with a fraction of one lacks.
func roundUp(ttl time.Duration) time.Duration {
	if ttl%time.Second == 0 {
		return 0
	}
	return time.Second
}

// begin keeps the lease until the store stops, or it is released or lost.
func (l *lease) begin(deadline, ttl time.Duration) error {
	ctx, leave, ok := l.service.life.enter(context.Background())
	if !ok {
		return fmt.Errorf("%w: %w", ErrUnavailable, errNotRunning)
	}
	ctx, l.cease = context.WithCancel(ctx)
	l.service.meters.leases.Inc()
	go func() {
		defer close(l.ceased)
		defer leave()
		defer l.cease()
		defer l.service.backend.leave(l.id)
		defer l.service.meters.leases.Dec()
		l.keep(ctx, deadline, ttl)
	}()
	return nil
}

// keep renews the lease at a third of its time. The deadline counts from before the question, and so comes no later
// than the store's.
func (l *lease) keep(ctx context.Context, deadline, ttl time.Duration) {
	pause := ttl / 3
	for l.sleep(ctx, min(pause, deadline-l.service.boot())) {
		asked := l.service.boot()
		if asked >= deadline {
			l.lose("its time is over")
			return
		}
		renewed, err := l.renew(ctx, deadline-asked)
		switch {
		case err == nil:
			ttl = renewed
			deadline, pause = asked+ttl, ttl/3
		case errors.Is(err, ErrLeaseLost):
			l.lose("the store has ended it")
			return
		default:
			pause = max(ttl/20, 50*time.Millisecond)
		}
	}
}

func (l *lease) renew(ctx context.Context, left time.Duration) (ttl time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(left, l.service.timeout))
	defer cancel()
	began := time.Now()
	ttl, err = l.service.backend.renew(ctx, l.id)
	l.service.meters.operation("renew", err, time.Since(began))
	return ttl, err
}

// sleep tells whether the lease is still to be kept.
func (l *lease) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (l *lease) lose(reason string) {
	close(l.lost)
	l.service.meters.lost.Inc()
	l.service.log.Warn("a lease in the cluster's store is lost", "reason", reason)
}

// Lost implements [Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// CompareAndSwap implements [Lease].
func (l *lease) CompareAndSwap(ctx context.Context, key string, revision int64, value []byte) (int64, error) {
	return l.service.swap(ctx, key, revision, value, l)
}

// Release implements [Lease].
func (l *lease) Release(ctx context.Context) error {
	l.cease()
	return l.service.call(ctx, "release", "", nil, func(ctx context.Context) error {
		select {
		case <-l.ceased:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := l.service.backend.revoke(ctx, l.id); !errors.Is(err, ErrLeaseLost) {
			return err
		}
		return nil
	})
}

// idOf is 0 without a lease.
func (s *service) idOf(of Lease) (int64, error) {
	if of == nil {
		return 0, nil
	}
	l, ok := of.(*lease)
	if !ok || l.service != s {
		return 0, fmt.Errorf("%w: it is of another store", ErrLeaseLost)
	}
	select {
	case <-l.lost:
		return 0, ErrLeaseLost
	default:
		return l.id, nil
	}
}
