// Package boltfile opens the bbolt files that a node's state is in, as carefully as their content needs: a file that is
// damaged is refused rather than replaced, because its endpoints may be in use.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// lockTimeout is how long a file that another process has open is waited for: an agent that is just ending.
const lockTimeout = 2 * time.Second

// ErrInUse is what [Kind] Fault gets when another process has the file open.
var ErrInUse = errors.New("another process has it open; each agent needs a folder of its own")

// Kind is what there is to know of a file besides that it is bbolt's.
type Kind struct {
	Name string // "ledger", for errors
	// Fill writes what a new file has. Nil: nothing.
	Fill func(tx *bbolt.Tx) error
	// Check says what is wrong with the content of a file whose pages are whole. Nil: nothing.
	Check func(tx *bbolt.Tx) error
	// Fault and Damaged make the errors that people read: of a file that cannot be opened, and of one whose content is not
	// what it was.
	Fault, Damaged func(path string, err error) error
}

// Open opens the file for this process alone, or makes it, and its folder.
func (k Kind) Open(path string) (*bbolt.DB, error) {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("open %s: %w", k.Name, err)
	}
	err := k.Read(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		err = k.make(path)
	}
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, k.fault(path, err)
	}
	return db, nil
}

func (k Kind) fault(path string, err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = ErrInUse
	}
	return k.Fault(path, err)
}

// Read reads the whole file, calls read if it is not nil, and changes nothing. A file that is shorter than it says it
// is would end the process with SIGBUS at the first page that is missing, for bbolt maps it. A file that is not there
// is a [fs.ErrNotExist].
func (k Kind) Read(path string, read func(tx *bbolt.Tx) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", k.Name, err)
	}
	if info.Size() == 0 {
		return k.Damaged(path, errors.New("it is empty"))
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if _, unread := errors.AsType[*fs.PathError](err); unread || errors.Is(err, bolterrors.ErrTimeout) {
		return k.fault(path, err)
	}
	if err != nil {
		return k.Damaged(path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("%d bytes of %d are there", info.Size(), tx.Size())
		}
		err := k.walk(tx)
		if err == nil && read != nil {
			err = read(tx)
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return k.Damaged(path, err)
	}
	return nil
}

// walk reads every page; bbolt reports a page that differs from its parent's entry.
func (k Kind) walk(tx *bbolt.Tx) (err error) {
	for fault := range tx.Check() {
		err = errors.Join(err, fault)
	}
	if err == nil && k.Check != nil {
		err = k.Check(tx)
	}
	return err
}

// make makes a file under another name, so that one of this name is whole whenever the process is killed or the power
// fails.
func (k Kind) make(path string) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return k.Fault(path, err)
	}
	db, err := bbolt.Open(temporary, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if err != nil {
		return k.Fault(path, err)
	}
	if k.Fill != nil {
		err = db.Update(k.Fill)
	}
	err = errors.Join(err, db.Sync(), db.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return k.Fault(path, err)
	}
	return nil
}
