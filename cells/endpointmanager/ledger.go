package endpointmanager

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
)

// ledger is the node's crash-safe record of attachments: one bbolt file, opened by the agent alone.
//
// The bucket of attachments has one record under an attachment's name, in one of these phases:
//
//	intent      written before the first step; after a crash every step is detached
//	committed   written after the last step; after a crash every step is restored
//	deleting    written before the first Detach; after a crash every step is detached
//
// After the last Detach the record moves to the bucket of tombstones, where the key begins with the time, so that the
// oldest are found and forgotten without reading the rest. It is the time of the boot clock, which nobody sets: a jump
// of the wall clock neither shortens nor prolongs what is remembered.
type ledger struct{ db *bbolt.DB }

type phase string

const (
	intent    phase = "intent"
	committed phase = "committed"
	deleting  phase = "deleting"
	buried    phase = "buried" // of a tombstone
)

// record is a value of the ledger. It is JSON, so that a person can read it and a later version extend it.
type record struct {
	Phase    phase
	Endpoint Endpoint
	Config   DeleteConfig  // of phase deleting, and of a tombstone
	At       time.Time     // when the record was written, for people
	Boot     time.Duration // the same on CLOCK_BOOTTIME
	Told     bool          // subscribers have heard of the endpoint
}

var (
	attachments = []byte("attachments-v1")
	tombstones  = []byte("tombstones-v1")
)

// openLedger opens the file, or makes it. It refuses a file that is damaged rather than begin anew: an empty ledger
// would make every living endpoint of the node an orphan.
func openLedger(path string) (*ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	err := checkLedgerFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeLedger(path)
	}
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, ledgerFault(path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := checkBuckets(tx); err != nil {
			return err
		}
		_, err1 := tx.CreateBucketIfNotExists(attachments)
		_, err2 := tx.CreateBucketIfNotExists(tombstones)
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, errors.Join(ledgerFault(path, err), db.Close())
	}
	return &ledger{db: db}, nil
}

func (l *ledger) close() error { return l.db.Close() }

// put writes the record in place of what was there of the same attachment.
func (l *ledger) put(rec record) error {
	value, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode ledger record of %s: %w", rec.Endpoint.Spec.Attachment, err)
	}
	return l.update(func(tx *bbolt.Tx) error {
		return tx.Bucket(attachments).Put(rec.key(), value)
	})
}

// bury moves the attachment to the tombstones, in one transaction.
func (l *ledger) bury(rec record) error {
	value, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode tombstone of %s: %w", rec.Endpoint.Spec.Attachment, err)
	}
	return l.update(func(tx *bbolt.Tx) error {
		if err := tx.Bucket(attachments).Delete(rec.key()); err != nil {
			return err
		}
		return tx.Bucket(tombstones).Put(append(timeKey(rec.Boot), rec.key()...), value)
	})
}

// expire forgets the tombstones written before oldest, and after newest: those are of another boot.
func (l *ledger) expire(oldest, newest time.Duration) error {
	begin, end := timeKey(max(0, oldest)), timeKey(newest)
	return l.update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(tombstones).Cursor()
		for key, _ := c.First(); key != nil && bytes.Compare(key, begin) < 0; key, _ = c.First() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		for key, _ := c.Last(); bytes.Compare(key[:min(8, len(key))], end) > 0; key, _ = c.Last() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// read returns the records of one bucket: attachments by name, tombstones oldest first.
func (l *ledger) read(bucket []byte) ([]record, error) {
	var records []record
	err := l.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(key, value []byte) error {
			rec, err := decodeRecord(key, value)
			if err != nil {
				return fmt.Errorf("record %q: %w", key, err)
			}
			records = append(records, rec)
			return nil
		})
	})
	if errors.Is(err, errOtherVersion) {
		return nil, ledgerFault(l.db.Path(), err)
	}
	if err != nil {
		return nil, damaged(l.db.Path(), err)
	}
	return records, nil
}

// decodeRecord refuses what it does not understand: an attachment in a phase that it does not know may be alive.
func decodeRecord(key, value []byte) (rec record, err error) {
	if err := json.Unmarshal(value, &rec); err != nil {
		return rec, err
	}
	if !bytes.HasSuffix(key, rec.key()) {
		return rec, fmt.Errorf("it is of attachment %s", rec.Endpoint.Spec.Attachment)
	}
	switch rec.Phase {
	case buried, intent, committed, deleting:
		return rec, nil
	}
	return rec, fmt.Errorf("phase %q: %w", rec.Phase, errOtherVersion)
}

func (l *ledger) update(change func(*bbolt.Tx) error) error {
	if err := l.db.Update(change); err != nil {
		return ledgerFault(l.db.Path(), err)
	}
	return nil
}

func (r record) key() []byte { return []byte(r.Endpoint.Spec.Attachment.String()) }

// timeKey sorts as the time does.
func timeKey(t time.Duration) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t)) }

// ledgerFault says what to do about an error of the file.
func ledgerFault(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fault.New(fault.Conflict, fmt.Sprintf("ledger %s: another process has it open; one agent a state-dir: end the other one or give this one its own", path))
	case errors.Is(err, errOtherVersion):
		return fault.Wrap(fault.Internal, fmt.Errorf("ledger %s: %w; running pods keep their network as it is. "+
			"Start that version, or drain the node, move the file away and start this one", path, err))
	case errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("%w: free space in %s", err, filepath.Dir(path))
	}
	return fault.Wrap(fault.Unavailable, fmt.Errorf("ledger %s: %w", path, err))
}
