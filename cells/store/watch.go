package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// watch sends the changes below a prefix to one reader.
type watch struct {
	service *service
	prefix  string
	after   int64 // the revision up to which all was sent; 0 when a resync is due
	out     chan Event
	pause   time.Duration // before the last attempt
}

// Watch implements [Store].
func (s *service) Watch(ctx context.Context, prefix string) (<-chan Event, error) {
	err := checkPrefix(prefix)
	var leave func()
	if err == nil {
		ctx, leave, err = s.enter(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %q in the store: %w", prefix, err)
	}
	w := &watch{service: s, prefix: prefix, out: make(chan Event)}
	s.meters.watches.Inc()
	go func() {
		defer leave()
		defer close(w.out)
		defer s.meters.watches.Dec()
		w.run(ctx)
	}()
	return w.out, nil
}

// run follows the changes until ctx ends. After an error it goes on where it was, or with a resync.
func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.follow(ctx)
		if errors.Is(err, errGone) {
			w.after = 0
		}
		pause := w.backoff()
		w.service.log.Debug("a watch of the cluster's store broke", "prefix", w.prefix, "error", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// backoff returns pauses that double, up to some seconds. Each is up to a half longer, so that the nodes of a cluster do not
// all come back at the same moment.
func (w *watch) backoff() time.Duration {
	w.pause = min(max(50*time.Millisecond, 2*w.pause), 3*time.Second)
	return w.pause + rand.N(w.pause/2)
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
		w.pause = 0
		for _, event := range events {
			event.Entry.Value = bytes.Clone(event.Entry.Value) // other watches may have the same
			if err := w.send(ctx, event); err != nil {
				return err
			}
		}
		w.after = upto
	}
}

// resync sends the list page by page, so that nobody has all of it in memory. Should its revision be compacted meanwhile, it begins anew.
func (w *watch) resync(ctx context.Context) error {
	event, after, revision := Event{Type: Resync}, "", int64(0)
	for first := true; first || event.More; first = false {
		var err error
		if event.Entries, event.More, revision, err = w.service.list(ctx, w.prefix, after, revision); err != nil {
			return err
		}
		event.Continues = !first
		if !event.More { // before whoever gets it can ask
			w.service.meters.resyncs.Inc()
		}
		if err := w.send(ctx, event); err != nil {
			return err
		}
		if n := len(event.Entries); n > 0 {
			after = event.Entries[n-1].Key
		}
	}
	w.after = revision
	return nil
}

func (w *watch) send(ctx context.Context, event Event) error {
	select {
	case w.out <- event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
