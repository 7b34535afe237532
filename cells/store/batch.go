package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"
)

// The buckets. Entries are by key: revision and lease, both of 8 bytes, then the value. Leases are by number.
var (
	entriesBucket = []byte("entries-v1")
	leasesBucket  = []byte("leases-v1")
	metaBucket    = []byte("meta-v1")
	revisionKey   = []byte("revision")
)

// errUnchanged ends a transaction in which nothing has changed: nothing is written.
var errUnchanged = errors.New("nothing has changed")

// batch is a change under way.
type batch struct {
	tx       *bbolt.Tx
	now      time.Duration
	revision int64 // of the last change so far
	events   []Event
	changed  bool
}

// put writes the entry under the lease, which must not be over, or under none.
func (b *batch) put(key string, value []byte, lease int64) (int64, error) {
	if lease != 0 {
		if record, there := leaseOf(b.tx, lease); !there || record.over(b.now) {
			return 0, ErrLeaseLost
		}
	}
	return b.replace(key, value, lease)
}

func (b *batch) replace(key string, value []byte, lease int64) (int64, error) {
	b.revision++
	b.changed = true
	stored := stored{revision: b.revision, lease: lease, value: bytes.Clone(value)}
	b.events = append(b.events, Event{Type: Put, Entry: Entry{key, stored.value, b.revision}, Revision: b.revision})
	return b.revision, b.tx.Bucket(entriesBucket).Put([]byte(key), stored.bytes())
}

func (b *batch) delete(key string) error {
	b.revision++
	b.changed = true
	b.events = append(b.events, Event{Type: Deleted, Entry: Entry{Key: key, Revision: b.revision}, Revision: b.revision})
	return b.tx.Bucket(entriesBucket).Delete([]byte(key))
}

func (b *batch) finish() error {
	if !b.changed {
		return errUnchanged
	}
	return b.tx.Bucket(metaBucket).Put(revisionKey, binary.BigEndian.AppendUint64(nil, uint64(b.revision)))
}

// revisionOf is that of the last change; a new file begins with 1.
func revisionOf(tx *bbolt.Tx) int64 {
	value := tx.Bucket(metaBucket).Get(revisionKey)
	if len(value) != 8 {
		return 1
	}
	return int64(binary.BigEndian.Uint64(value))
}

// stored is an entry in the file.
type stored struct {
	revision, lease int64
	value           []byte
}

const storedHead = 16

func lookUp(tx *bbolt.Tx, key string) (stored, bool) {
	value := tx.Bucket(entriesBucket).Get([]byte(key))
	if value == nil {
		return stored{}, false
	}
	return parseStored(value), true
}

// parseStored expects what checkFile has let through.
func parseStored(text []byte) stored {
	return stored{
		revision: int64(binary.BigEndian.Uint64(text)), lease: int64(binary.BigEndian.Uint64(text[8:])), value: text[storedHead:],
	}
}

func (s stored) bytes() []byte {
	text := binary.BigEndian.AppendUint64(make([]byte, 0, storedHead+len(s.value)), uint64(s.revision))
	return append(binary.BigEndian.AppendUint64(text, uint64(s.lease)), s.value...)
}

// entry outlives the transaction.
func (s stored) entry(key string) Entry { return Entry{key, bytes.Clone(s.value), s.revision} }
