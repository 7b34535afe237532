package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// watch is one reader of changes.
type watch struct {
	service *service
	prefix  string
	after   int64 // what has been told; 0 when it is to begin anew
	back    bool  // for the store was set back
	out     chan Event
	wait    backoff
}

// Watch implements [Store].
func (s *service) Watch(ctx context.Context, prefix string, after int64) (<-chan Event, error) {
	err := checkPrefix(prefix)
	if err == nil && after < 0 {
		err = fmt.Errorf("%w: revision %d", ErrInvalid, after)
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("watch %q in the store: %w", prefix, err)
	}
	ctx, leave, ok := s.life.enter(ctx)
	if !ok {
		return nil, fmt.Errorf("watch %q in the store: %w: %w", prefix, ErrUnavailable, errNotRunning)
	}
	w := &watch{service: s, prefix: prefix, after: after, out: make(chan Event)}
	s.meters.watches.Inc()
	go func() {
		defer leave()
		defer close(w.out)
		defer s.meters.watches.Dec()
		w.run(ctx)
	}()
	return w.out, nil
}

// run follows the changes until ctx ends. What breaks goes on where it was.
func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.follow(ctx)
		if errors.Is(err, errGone) {
			w.after, w.back = 0, w.back || errors.Is(err, errBack)
			continue
		}
		pause := w.wait.next()
		w.service.log.Debug("a watch of the cluster's store broke", "prefix", w.prefix, "error", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (w *watch) follow(ctx context.Context) error {
	if w.after == 0 {
		if err := w.resync(ctx); err != nil {
			return err
		}
	}
	t := w.service.backend.tail(ctx, w.prefix, w.after)
	defer t.close()
	for {
		events, upto, err := t.next(ctx, w.after)
		if err != nil {
			return err
		}
		w.wait.reset()
		for _, event := range events {
			event.Entry.Value = bytes.Clone(event.Entry.Value) // it may be another watch's, too
			if err := w.tell(ctx, event); err != nil {
				return err
			}
		}
		w.after = upto
	}
}

// resync tells the whole list.
func (w *watch) resync(ctx context.Context) error {
	entries, revision, err := w.service.List(ctx, w.prefix)
	if err != nil {
		return err
	}
	w.service.meters.resyncs.Inc()
	if err := w.tell(ctx, Event{Type: Resync, Entries: entries, Back: w.back, Revision: revision}); err != nil {
		return err
	}
	w.after, w.back = revision, false
	return nil
}

func (w *watch) tell(ctx context.Context, event Event) error {
	select {
	case w.out <- event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
