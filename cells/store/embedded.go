package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/fault"
)

// embedded is a store in one bbolt file, for one node.
//
// A change is written before it is told. Who writes has the turn until it has also told, so the history is in the order
// of the revisions. The file has no past: after a start, watches begin with the whole list.
type embedded struct {
	path    string
	log     *slog.Logger
	boot    func() time.Duration
	turn    chan struct{} // has one element while somebody writes
	poke    chan struct{} // the earliest end of a lease may have changed
	db      *bbolt.DB
	history *history
	stopped context.CancelFunc
	ending  sync.WaitGroup
}

func newEmbedded(path string, log *slog.Logger, boot func() time.Duration) *embedded {
	return &embedded{path: path, log: log, boot: boot, turn: make(chan struct{}, 1), poke: make(chan struct{}, 1)}
}

func (e *embedded) where() string { return e.path }

func (e *embedded) start(context.Context) (err error) {
	if e.db, err = storeFile.Open(e.path); err != nil {
		return err
	}
	err = e.db.View(func(tx *bbolt.Tx) error {
		e.history = newHistory(revisionOf(tx))
		return nil
	})
	if err != nil {
		return errors.Join(e.unavailable(err), e.db.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.stopped = cancel
	e.ending.Go(func() { e.endLeases(ctx) })
	return nil
}

func (e *embedded) stop() error {
	e.stopped()
	e.ending.Wait()
	return e.db.Close()
}

func (e *embedded) get(_ context.Context, key string) (entry Entry, err error) {
	err = e.view(func(tx *bbolt.Tx) error {
		stored, there := lookUp(tx, key)
		if !there {
			return ErrNotFound
		}
		entry = stored.entry(key)
		return nil
	})
	return entry, err
}

func (e *embedded) list(ctx context.Context, prefix string) (entries []Entry, revision int64, err error) {
	err = e.view(func(tx *bbolt.Tx) error {
		revision = revisionOf(tx)
		c := tx.Bucket(entriesBucket).Cursor()
		for key, value := c.Seek([]byte(prefix)); bytes.HasPrefix(key, []byte(prefix)) && key != nil; key, value = c.Next() {
			entries = append(entries, parseStored(value).entry(string(key)))
		}
		return nil
	})
	return entries, revision, err
}

// tail waits for who writes: what a list has shown is in the history then.
func (e *embedded) tail(ctx context.Context, prefix string, _ int64) tail {
	if e.take(ctx) == nil {
		e.giveBack()
	}
	return tail{history: e.history, prefix: prefix, close: func() {}}
}

func (e *embedded) create(ctx context.Context, key string, value []byte, lease int64) (revision int64, err error) {
	err = e.write(ctx, func(b *batch) error {
		if _, there := lookUp(b.tx, key); there {
			return ErrExists
		}
		revision, err = b.put(key, value, lease)
		return err
	})
	return revision, err
}

func (e *embedded) swap(ctx context.Context, key string, old int64, value []byte, lease int64) (revision int64, err error) {
	err = e.write(ctx, func(b *batch) error {
		stored, there := lookUp(b.tx, key)
		if !there || stored.revision != old {
			return ErrConflict
		}
		if lease == 0 {
			revision, err = b.replace(key, value, stored.lease)
		} else {
			revision, err = b.put(key, value, lease)
		}
		return err
	})
	return revision, err
}

func (e *embedded) remove(ctx context.Context, key string, revision int64) error {
	return e.write(ctx, func(b *batch) error {
		stored, there := lookUp(b.tx, key)
		if !there {
			return nil
		}
		if revision != 0 && stored.revision != revision {
			return ErrConflict
		}
		return b.delete(key)
	})
}

func (e *embedded) view(look func(*bbolt.Tx) error) error { return e.unavailable(e.db.View(look)) }

// write does all of a change or nothing, and tells it.
func (e *embedded) write(ctx context.Context, change func(*batch) error) error {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.giveBack()
	var b *batch
	err := e.db.Update(func(tx *bbolt.Tx) error {
		b = &batch{tx: tx, now: e.boot(), revision: revisionOf(tx)}
		if err := change(b); err != nil {
			return err
		}
		return b.finish()
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err == nil && len(b.events) > 0 {
		e.history.add(b.revision, b.events...)
	}
	return e.unavailable(err)
}

func (e *embedded) take(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *embedded) giveBack() { <-e.turn }

// unavailable gives errors of the file a kind. Those of this package have theirs.
func (e *embedded) unavailable(err error) error {
	if err == nil || fault.KindOf(err) != fault.Internal {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, e.path, err)
}
