package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// backend is where the entries are. Keys and values that reach it are valid, contexts have a deadline, and calls come only
// between start and stop. It may return a context's error as it is.
type backend interface {
	// location names the store, for people.
	location() string
	start() error
	// stop is called when no call is under way any more.
	stop() error

	// These are the ones of Store.
	get(ctx context.Context, key string) (Entry, error)
	page(ctx context.Context, prefix, after string, limit int) (entries []Entry, more bool, err error)
	create(ctx context.Context, key string, value []byte) error
	replace(ctx context.Context, key string, was, value []byte) error
	remove(ctx context.Context, key string, was []byte) error
	position(ctx context.Context) (Position, error)

	// list returns a page of the entries below prefix as they were together at a revision: those after the key, and whether others follow.
	// With 0 it is the latest revision, which is returned.
	list(ctx context.Context, prefix, after string, at int64) (entries []Entry, more bool, revision int64, err error)
	// tail begins to follow the changes after the revision, which is above 0.
	tail(ctx context.Context, prefix string, after int64) tail
}

// service is what all backends have in common: it checks arguments, bounds the time of calls, and counts them.
type service struct {
	backend   backend
	log       *slog.Logger
	meters    *meters
	health    health
	lifecycle lifecycle
	timeout   time.Duration // of a call
}

// New returns the store that cfg names. It opens nothing before Start.
func New(cfg Config, log *slog.Logger) (Service, error) { return newService(cfg, log) }

func newService(cfg Config, log *slog.Logger) (*service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &service{log: log, meters: newMeters(), timeout: cfg.Timeout}
	if cfg.Backend == BackendEtcd {
		s.backend = newEtcd(cfg.Etcd)
	} else {
		s.backend = newEmbedded(cfg.path())
	}
	return s, nil
}

// Start implements [Service].
func (s *service) Start(context.Context) error {
	if err := s.backend.start(); err != nil {
		return err
	}
	s.lifecycle.begin()
	s.log.Info("the cluster's store is open", "store", s.backend.location())
	return nil
}

// Stop implements [Service].
func (s *service) Stop(context.Context) error {
	if !s.lifecycle.end() {
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

// Page implements [Store].
func (s *service) Page(ctx context.Context, prefix, after string, limit int) (entries []Entry, more bool, err error) {
	err = s.call(ctx, "page", prefix, checkPrefix(prefix), func(ctx context.Context) error {
		entries, more, err = s.backend.page(ctx, prefix, after, limit)
		return err
	})
	return entries, more, err
}

func (s *service) list(ctx context.Context, prefix, after string, at int64) (entries []Entry, more bool, revision int64, err error) {
	err = s.call(ctx, "list", prefix, nil, func(ctx context.Context) error {
		entries, more, revision, err = s.backend.list(ctx, prefix, after, at)
		return err
	})
	return entries, more, revision, err
}

// Create implements [Store].
func (s *service) Create(ctx context.Context, key string, value []byte) error {
	fault := cmp.Or(checkKey(key), checkValue(value))
	return s.call(ctx, "create", key, fault, func(ctx context.Context) error { return s.backend.create(ctx, key, value) })
}

// Replace implements [Store].
func (s *service) Replace(ctx context.Context, key string, was, value []byte) error {
	fault := cmp.Or(checkKey(key), checkValue(value))
	return s.call(ctx, "replace", key, fault, func(ctx context.Context) error { return s.backend.replace(ctx, key, was, value) })
}

// Remove implements [Store].
func (s *service) Remove(ctx context.Context, key string, was []byte) error {
	return s.call(ctx, "remove", key, checkKey(key), func(ctx context.Context) error { return s.backend.remove(ctx, key, was) })
}

// Position implements [Store].
func (s *service) Position(ctx context.Context) (p Position, err error) {
	err = s.call(ctx, "position", "", nil, func(ctx context.Context) error {
		p, err = s.backend.position(ctx)
		return err
	})
	return p, err
}

// call runs one operation within its time and counts it. With a fault it does not run it, and returns the fault.
func (s *service) call(ctx context.Context, operation, subject string, fault error, run func(context.Context) error) error {
	began := time.Now()
	err := fault
	if err == nil {
		err = s.within(ctx, run)
		s.health.observe(err, time.Now())
	}
	s.meters.operation(operation, err, time.Since(began))
	if err == nil {
		return nil
	}
	if subject != "" {
		operation += fmt.Sprintf(" %q", subject)
	}
	return fmt.Errorf("%s in the store: %w", operation, err)
}

func (s *service) within(ctx context.Context, run func(context.Context) error) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errNoAnswer)
	defer cancel()
	err = run(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return s.unavailable(cmp.Or(context.Cause(ctx), errNoAnswer))
	}
	return err
}

// enter is that of the lifecycle.
func (s *service) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	ctx, leave, err = s.lifecycle.enter(ctx)
	if err != nil {
		err = s.unavailable(err)
	}
	return ctx, leave, err
}

func (s *service) unavailable(reason error) error {
	return &unavailable{s.backend.location(), reason}
}
