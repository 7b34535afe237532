package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"porin.dev/porin/internal/boottime"
)

// service is what every backend has in common: what is checked before it, and what is measured around it.
type service struct {
	backend backend
	log     *slog.Logger
	meters  *meters
	life    life
	timeout time.Duration        // of a call
	boot    func() time.Duration // the clock of leases
}

// New returns the store that cfg names. It opens nothing before Start.
func New(cfg Config, log *slog.Logger) (Service, error) { return newService(cfg, log) }

func newService(cfg Config, log *slog.Logger) (*service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &service{log: log, meters: newMeters(), timeout: cfg.Timeout, boot: boottime.Now}
	if cfg.Backend == BackendEtcd {
		s.backend = newEtcd(cfg.Etcd)
	} else {
		s.backend = newEmbedded(cfg.path(), log, func() time.Duration { return s.boot() })
	}
	return s, nil
}

// Start implements [Service].
func (s *service) Start(ctx context.Context) error {
	if err := s.backend.start(ctx); err != nil {
		return err
	}
	s.life.begin()
	s.log.Info("the cluster's store is open", "store", s.backend.where())
	return nil
}

// Stop implements [Service].
func (s *service) Stop(context.Context) error {
	if !s.life.end() {
		return nil
	}
	return s.backend.stop()
}

// Get implements [Store].
func (s *service) Get(ctx context.Context, key string) (entry Entry, err error) {
	err = s.call(ctx, "get", key, checkKey(key), func(ctx context.Context) error {
		entry, err = s.backend.get(ctx, key)
		return err
	})
	return entry, err
}

// List implements [Store].
func (s *service) List(ctx context.Context, prefix string) (entries []Entry, revision int64, err error) {
	err = s.call(ctx, "list", prefix, checkPrefix(prefix), func(ctx context.Context) error {
		entries, revision, err = s.backend.list(ctx, prefix)
		return err
	})
	return entries, revision, err
}

// Create implements [Store].
func (s *service) Create(ctx context.Context, key string, value []byte, l Lease) (revision int64, err error) {
	id, fault := s.idOf(l)
	fault = errors.Join(checkKey(key), checkValue(value), fault)
	err = s.call(ctx, "create", key, fault, func(ctx context.Context) error {
		revision, err = s.backend.create(ctx, key, value, id)
		return err
	})
	return revision, err
}

// CompareAndSwap implements [Store].
func (s *service) CompareAndSwap(ctx context.Context, key string, revision int64, value []byte) (int64, error) {
	return s.swap(ctx, key, revision, value, nil)
}

func (s *service) swap(ctx context.Context, key string, revision int64, value []byte, l Lease) (changed int64, err error) {
	id, fault := s.idOf(l)
	fault = errors.Join(checkKey(key), checkValue(value), fault)
	if fault == nil && revision <= 0 { // no entry has such a revision
		fault = ErrConflict
	}
	err = s.call(ctx, "compare-and-swap", key, fault, func(ctx context.Context) error {
		changed, err = s.backend.swap(ctx, key, revision, value, id)
		return err
	})
	return changed, err
}

// Delete implements [Store].
func (s *service) Delete(ctx context.Context, key string, revision int64) error {
	return s.call(ctx, "delete", key, checkKey(key), func(ctx context.Context) error {
		return s.backend.remove(ctx, key, revision)
	})
}

// call runs one operation, unless fault says that it cannot be, within its time and on the meters.
func (s *service) call(ctx context.Context, operation, subject string, fault error, run func(context.Context) error) error {
	began := time.Now()
	err := fault
	if err == nil {
		err = s.within(ctx, run)
	}
	s.meters.operation(operation, err, time.Since(began))
	if err != nil {
		return fmt.Errorf("%s %q in the store: %w", operation, subject, err)
	}
	return nil
}

func (s *service) within(ctx context.Context, run func(context.Context) error) error {
	ctx, leave, ok := s.life.enter(ctx)
	if !ok {
		return fmt.Errorf("%w: %w", ErrUnavailable, errNotRunning)
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errNoAnswer)
	defer cancel()
	err := ctx.Err()
	if err == nil {
		err = run(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, s.backend.where(), causeOf(ctx, err))
	}
	return err
}

// causeOf is why the context ended, or the error when it has not.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
