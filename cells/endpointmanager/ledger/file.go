package ledger

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
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/boltfile"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/fault"
)

// File is a ledger in one bbolt file, opened by the agent alone.
//
// The bucket of attachments has one record under an attachment's name, in one of these phases:
//
//	intent      written before the first step; after a crash every step is detached
//	committed   written after the last step; after a crash every step is restored
//	deleting    written before the first Detach; after a crash every step is detached
//	held        written by a start that cannot explain it, or not bring it back; the next start decides again
//
// After the last Detach the record moves to the bucket of tombstones, where the key begins with the time, so that the
// oldest are found and forgotten without reading the rest. It is the time of the boot clock, which no program sets: a
// jump of the wall clock neither shortens nor prolongs how long tombstones last. Deletions of unknown attachments are
// in a bucket of their own, by attachment. One bucket has the boot and the network namespace of all records.
type File struct {
	db      *bbolt.DB
	path    string
	opened  os.FileInfo // the file that db writes to
	commits commits
}

var (
	attachmentsBucket = []byte("attachments-v1")
	tombstonesBucket  = []byte("tombstones-v1")
	notesBucket       = []byte("deletions-v1")
	tryBucket         = []byte("try-v1")
	originBucket      = []byte("origin-v1") // one value, under originKey
	originKey         = []byte("origin")
)

// Open opens the file, or makes it.
func Open(path string) (*File, error) {
	db, err := ledgerKind.Open(path)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		// Attachments in another form are refused. What else a later version keeps is passed over, so that the way back to
		// this one stays open.
		err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if bytes.HasPrefix(name, []byte("attachments")) && !bytes.Equal(name, attachmentsBucket) {
				return fmt.Errorf("bucket %q: %w", name, ErrOtherVersion)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range [][]byte{attachmentsBucket, tombstonesBucket, notesBucket, tryBucket, originBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(ledgerFault(path, err), db.Close())
	}
	opened, err := os.Stat(path)
	if err != nil {
		return nil, errors.Join(ledgerFault(path, err), db.Close())
	}
	return &File{db: db, path: path, opened: opened, commits: commits{run: db.Update}}, nil
}

func (l *File) Close() error { return l.db.Close() }
func (l *File) Path() string { return l.path }

func (l *File) Lost() error {
	now, err := os.Stat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrRemoved, err)
	case err == nil && !os.SameFile(now, l.opened):
		return fmt.Errorf("%s is not the file that the agent has open", l.path)
	}
	return err
}

func (l *File) Put(rec Record) error { return l.PutAll([]Record{rec}) }

func (l *File) PutAll(recs []Record) error {
	values := make([][]byte, len(recs))
	for i, rec := range recs {
		var err error
		if values[i], err = json.Marshal(rec); err != nil {
			return fmt.Errorf("encode ledger record of %s: %w", rec.Endpoint.Spec.Attachment, err)
		}
	}
	return l.update(func(tx *bbolt.Tx) error {
		for i, rec := range recs {
			if err := tx.Bucket(attachmentsBucket).Put(rec.key(), values[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *File) PutTombstone(rec Record) error {
	value, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode tombstone of %s: %w", rec.Endpoint.Spec.Attachment, err)
	}
	return l.update(func(tx *bbolt.Tx) error {
		if err := tx.Bucket(attachmentsBucket).Delete(rec.key()); err != nil {
			return err
		}
		return tx.Bucket(tombstonesBucket).Put(append(timeKey(rec.Boot), rec.key()...), value)
	})
}

func (l *File) RecordDeletion(n DeletionNote) error {
	return l.update(func(tx *bbolt.Tx) error {
		bucket, key := tx.Bucket(notesBucket), []byte(n.Attachment.String())
		var before DeletionNote
		if json.Unmarshal(bucket.Get(key), &before) == nil { // else there is none, or none that can be read
			n.Began = max(n.Began, before.Began)
		}
		value, err := json.Marshal(n)
		if err != nil {
			return fmt.Errorf("encode the deletion of %s: %w", n.Attachment, err)
		}
		return bucket.Put(key, value)
	})
}

// ReadOrigin returns the origin of a ledger that is not open, and changes nothing.
func ReadOrigin(path string) (o Origin, err error) {
	err = ledgerKind.Read(path, func(tx *bbolt.Tx) error { return readOrigin(tx, &o) })
	return o, err
}

// ReadAttachments returns the records of a ledger that is not open, and changes nothing.
func ReadAttachments(path string) (records []Record, err error) {
	err = ledgerKind.Read(path, func(tx *bbolt.Tx) error {
		if tx.Bucket(attachmentsBucket) == nil {
			return nil
		}
		records, err = readRecords(tx, attachmentsBucket)
		return err
	})
	return records, err
}

// readOrigin leaves o as it is when the ledger says nothing of its origin.
func readOrigin(tx *bbolt.Tx, o *Origin) error {
	if bucket := tx.Bucket(originBucket); bucket != nil && bucket.Get(originKey) != nil {
		return json.Unmarshal(bucket.Get(originKey), o)
	}
	return nil
}

func (l *File) Origin() (o Origin, err error) {
	err = l.db.View(func(tx *bbolt.Tx) error { return readOrigin(tx, &o) })
	if err != nil {
		return o, Damaged(l.Path(), fmt.Errorf("origin: %w", err))
	}
	return o, nil
}

func (l *File) SetOrigin(o Origin) error {
	value, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode the origin of the ledger: %w", err)
	}
	return l.update(func(tx *bbolt.Tx) error { return tx.Bucket(originBucket).Put(originKey, value) })
}

func (l *File) Probe() error {
	return l.update(func(tx *bbolt.Tx) error { return tx.Bucket(tryBucket).Put([]byte("written"), timeKey(boottime.Now())) })
}

// Expire collects keys before it deletes any. A deletion moves what a cursor stands on, and a cursor on a bucket whose
// pages were all emptied in this transaction never comes to an end (bbolt 1.5.0, Cursor.Last).
func (l *File) Expire(oldest, newest time.Duration) error {
	begin, end := timeKey(max(0, oldest)), timeKey(newest)
	return l.update(func(tx *bbolt.Tx) error {
		tombstones, notes := tx.Bucket(tombstonesBucket), tx.Bucket(notesBucket)
		var old, expired [][]byte
		c := tombstones.Cursor()
		for key, _ := c.First(); key != nil && bytes.Compare(key, begin) < 0; key, _ = c.Next() {
			old = append(old, bytes.Clone(key))
		}
		for key, _ := c.Last(); key != nil && bytes.Compare(key[:min(8, len(key))], end) > 0; key, _ = c.Prev() {
			old = append(old, bytes.Clone(key))
		}
		err := notes.ForEach(func(key, value []byte) error {
			var n DeletionNote
			if err := json.Unmarshal(value, &n); err != nil || n.Boot < oldest || n.Boot > newest {
				expired = append(expired, bytes.Clone(key))
			}
			return nil
		})
		for _, key := range old {
			err = errors.Join(err, tombstones.Delete(key))
		}
		for _, key := range expired {
			err = errors.Join(err, notes.Delete(key))
		}
		return err
	})
}

func (l *File) Attachments() ([]Record, error) { return l.read(attachmentsBucket) }
func (l *File) Tombstones() ([]Record, error)  { return l.read(tombstonesBucket) }

func (l *File) DeletionNotes() (notes []DeletionNote, err error) {
	err = l.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(notesBucket).ForEach(func(key, value []byte) error {
			var n DeletionNote
			if err := json.Unmarshal(value, &n); err != nil {
				return Damaged(l.Path(), fmt.Errorf("deletion %q: %w", key, err))
			}
			notes = append(notes, n)
			return nil
		})
	})
	return notes, err
}

func (l *File) read(bucket []byte) (records []Record, err error) {
	err = l.db.View(func(tx *bbolt.Tx) error {
		records, err = readRecords(tx, bucket)
		return err
	})
	if errors.Is(err, ErrOtherVersion) {
		return nil, ledgerFault(l.db.Path(), err)
	}
	if err != nil {
		return nil, Damaged(l.db.Path(), err)
	}
	return records, nil
}

// readRecords returns the records of a bucket, and stops at the first one that it cannot read.
func readRecords(tx *bbolt.Tx, bucket []byte) (records []Record, err error) {
	err = tx.Bucket(bucket).ForEach(func(key, value []byte) error {
		rec, err := decodeRecord(key, value)
		if err != nil {
			return fmt.Errorf("record %q: %w", key, err)
		}
		records = append(records, rec)
		return nil
	})
	return records, err
}

// decodeRecord refuses what it does not understand: an attachment in a phase that it does not know may be alive.
func decodeRecord(key, value []byte) (rec Record, err error) {
	if err := json.Unmarshal(value, &rec); err != nil {
		return rec, err
	}
	if !bytes.HasSuffix(key, rec.key()) {
		return rec, fmt.Errorf("it is of attachment %s", rec.Endpoint.Spec.Attachment)
	}
	switch rec.Phase {
	case Tombstone, Intent, Committed, Deleting, Held:
		return rec, nil
	}
	return rec, fmt.Errorf("phase %q: %w", rec.Phase, ErrOtherVersion)
}

func (l *File) update(change func(*bbolt.Tx) error) error {
	if err := l.commits.commit(change); err != nil {
		return ledgerFault(l.db.Path(), err)
	}
	return nil
}

// key is not the text of the attachment when that is endpoint.Unnamed.
func (r Record) key() []byte {
	a := r.Endpoint.Spec.Attachment
	return []byte(a.ContainerID + ":" + a.IfName)
}

// timeKey sorts as the time does.
func timeKey(t time.Duration) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t)) }

// ledgerFault says what to do about an error of the file.
func ledgerFault(path string, err error) error {
	switch {
	case errors.Is(err, boltfile.ErrInUse):
		return fault.New(fault.Conflict, fmt.Sprintf("ledger %s: another process has it open; one agent a state-dir: end the other one or give this one its own", path))
	case errors.Is(err, ErrOtherVersion):
		return fault.Wrap(fault.Internal, fmt.Errorf("ledger %s: %w; running pods keep their network as it is. "+
			"Start that version, or drain the node, move the file away and start this one", path, err))
	case errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("%w: free space in %s", err, filepath.Dir(path))
	}
	return fault.Wrap(fault.Unavailable, fmt.Errorf("ledger %s: %w", path, err))
}

// ledgerKind is the ledger's file. An empty file in place of a damaged file would make every living endpoint of the
// node an orphan.
var ledgerKind = boltfile.Kind{Name: "ledger", Fault: ledgerFault, Damaged: Damaged}

// ErrRemoved is why a ledger is lost when its file is not there any more.
var ErrRemoved = errors.New("it was removed")

// ErrOtherVersion is returned when the ledger holds what this agent does not know, and must not take for nothing.
var ErrOtherVersion = errors.New("it was written by another version of porin-agent")

// Damaged says what to do about a ledger that holds what cannot be.
func Damaged(path string, err error) error {
	return fault.Wrap(fault.Internal, fmt.Errorf("ledger %s is damaged: %w; running pods keep their network as it is. "+
		"To go on, restore the file, or drain the node, move the file away and start the agent", path, err))
}
