package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/fault"
)

// The buckets of the file: values by key, and the revision of the last change.
var (
	entriesBucket = []byte("entries-v2")
	metaBucket    = []byte("meta-v1")
	revisionKey   = []byte("revision")
)

// errUnchanged ends a transaction without a change: nothing is written.
var errUnchanged = errors.New("nothing has changed")

// embedded is a store in one bbolt file, for one node.
//
// A change is in the file before watches see it. A writer keeps the lock until both is done, so the history has the order of the
// revisions. The file has no past: after a start, watches begin with the whole list.
type embedded struct {
	path    string
	writing chan struct{} // a lock that can be waited for with a context: it has one element while somebody writes
	db      *bbolt.DB
	history *history
}

func newEmbedded(path string) *embedded {
	return &embedded{path: path, writing: make(chan struct{}, 1)}
}

func (e *embedded) location() string { return e.path }

func (e *embedded) start() (err error) {
	if e.db, err = storeFile.Open(e.path); err != nil {
		return err
	}
	p, err := e.position(context.Background())
	if err != nil {
		return errors.Join(err, e.db.Close())
	}
	e.history = newHistory(int64(p.Revision))
	return nil
}

func (e *embedded) stop() error { return e.db.Close() }

func (e *embedded) get(_ context.Context, key string) (entry Entry, err error) {
	err = e.view(func(tx *bbolt.Tx) error {
		value, exists := lookup(tx, key)
		if !exists {
			return ErrNotFound
		}
		entry = Entry{key, bytes.Clone(value)}
		return nil
	})
	return entry, err
}

func (e *embedded) page(_ context.Context, prefix, after string, limit int) (entries []Entry, more bool, err error) {
	err = e.view(func(tx *bbolt.Tx) error {
		entries, more = entriesOf(tx, prefix, after, limit)
		return nil
	})
	return entries, more, err
}

// list returns everything in one page.
func (e *embedded) list(_ context.Context, prefix, after string, _ int64) (entries []Entry, more bool, revision int64, err error) {
	err = e.view(func(tx *bbolt.Tx) error {
		entries, more = entriesOf(tx, prefix, after, math.MaxInt)
		revision = revisionOf(tx)
		return nil
	})
	return entries, more, revision, err
}

// position has no identity: the record of the cluster has one.
func (e *embedded) position(context.Context) (p Position, err error) {
	err = e.view(func(tx *bbolt.Tx) error {
		p.Revision = uint64(revisionOf(tx))
		return nil
	})
	return p, err
}

// tail waits for the writer: what a list has shown is in the history then.
func (e *embedded) tail(ctx context.Context, prefix string, _ int64) tail {
	if e.lock(ctx) == nil {
		e.unlock()
	}
	return tail{history: e.history, prefix: prefix, close: func() {}}
}

func (e *embedded) create(ctx context.Context, key string, value []byte) error {
	return e.write(ctx, key, func(_ []byte, exists bool) (Event, error) {
		if exists {
			return Event{}, ErrExists
		}
		return putOf(key, value), nil
	})
}

func (e *embedded) replace(ctx context.Context, key string, was, value []byte) error {
	return e.write(ctx, key, func(now []byte, exists bool) (Event, error) {
		switch {
		case !exists || !bytes.Equal(now, was):
			return Event{}, ErrConflict
		case bytes.Equal(was, value):
			return Event{}, errUnchanged
		}
		return putOf(key, value), nil
	})
}

func (e *embedded) remove(ctx context.Context, key string, was []byte) error {
	return e.write(ctx, key, func(now []byte, exists bool) (Event, error) {
		switch {
		case !exists:
			return Event{}, errUnchanged
		case !bytes.Equal(now, was):
			return Event{}, ErrConflict
		}
		return Event{Type: Deleted, Entry: Entry{Key: key}}, nil
	})
}

func putOf(key string, value []byte) Event {
	return Event{Type: Put, Entry: Entry{key, bytes.Clone(value)}}
}

func (e *embedded) view(read func(*bbolt.Tx) error) error { return e.unavailable(e.db.View(read)) }

// write makes the change of an entry that decide returns for what is there now, and sends it to the watches.
func (e *embedded) write(ctx context.Context, key string, decide func(now []byte, exists bool) (Event, error)) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	var change Event
	err := e.db.Update(func(tx *bbolt.Tx) (err error) {
		if change, err = decide(lookup(tx, key)); err != nil {
			return err
		}
		change.revision = revisionOf(tx) + 1
		return apply(tx, change)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err == nil {
		e.history.add(change.revision, change)
	}
	return e.unavailable(err)
}

func (e *embedded) lock(ctx context.Context) error {
	select {
	case e.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *embedded) unlock() { <-e.writing }

// unavailable gives errors of the file a kind. Those of this package have theirs.
func (e *embedded) unavailable(err error) error {
	if err == nil || fault.KindOf(err) != fault.Internal {
		return err
	}
	return &unavailable{e.location(), err}
}

// lookup returns a value that is valid until the transaction ends.
func lookup(tx *bbolt.Tx, key string) (value []byte, exists bool) {
	found, value := tx.Bucket(entriesBucket).Cursor().Seek([]byte(key))
	if string(found) != key {
		return nil, false
	}
	return value, true
}

func entriesOf(tx *bbolt.Tx, prefix, after string, limit int) (entries []Entry, more bool) {
	c := tx.Bucket(entriesBucket).Cursor()
	key, value := c.Seek([]byte(max(prefix, after)))
	if after != "" && string(key) == after {
		key, value = c.Next()
	}
	for ; key != nil && bytes.HasPrefix(key, []byte(prefix)); key, value = c.Next() {
		if len(entries) == limit {
			return entries, true
		}
		entries = append(entries, Entry{string(key), bytes.Clone(value)})
	}
	return entries, false
}

func apply(tx *bbolt.Tx, change Event) (err error) {
	key, value := []byte(change.Entry.Key), change.Entry.Value
	if change.Type == Deleted {
		err = tx.Bucket(entriesBucket).Delete(key)
	} else {
		err = tx.Bucket(entriesBucket).Put(key, value)
	}
	if err != nil {
		return err
	}
	return tx.Bucket(metaBucket).Put(revisionKey, binary.BigEndian.AppendUint64(nil, uint64(change.revision)))
}

// revisionOf is that of the last change; a new file begins with 1.
func revisionOf(tx *bbolt.Tx) int64 {
	value := tx.Bucket(metaBucket).Get(revisionKey)
	if len(value) != 8 {
		return 1
	}
	return int64(binary.BigEndian.Uint64(value))
}
