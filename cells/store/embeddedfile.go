package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"porin.dev/porin/internal/fault"
)

// lockTimeout is how long the store waits for the process that has the file open: an agent that is just ending.
const lockTimeout = 2 * time.Second

// openFile opens the file, or makes it. It refuses a file that is damaged rather than begin anew: an empty store would
// give out blocks that are in use.
func openFile(path string) (*bbolt.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	err := checkFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeFile(path)
	}
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fileFault(path, err)
	}
	return db, nil
}

// makeFile makes an empty store under another name, so that a file of this name is whole whenever the agent is killed.
func makeFile(path string) (err error) {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileFault(path, err)
	}
	db, err := bbolt.Open(temporary, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if err != nil {
		return fileFault(path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) (err error) {
		for _, name := range [][]byte{entriesBucket, leasesBucket, metaBucket} {
			_, one := tx.CreateBucket(name)
			err = errors.Join(err, one)
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fileFault(path, err)
	}
	return nil
}

// checkFile reads the whole file before it is opened for writing. A file that is shorter than it says it is would end
// the process with SIGBUS at the first page that is missing, for bbolt maps it.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	if info.Size() == 0 {
		return damaged(path, errors.New("it is empty"))
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if _, unread := errors.AsType[*fs.PathError](err); unread || errors.Is(err, bolterrors.ErrTimeout) {
		return fileFault(path, err)
	}
	if err != nil {
		return damaged(path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("%d bytes of %d are there", info.Size(), tx.Size())
		}
		return checkContent(tx)
	})
	err = errors.Join(err, db.Close())
	if errors.Is(err, ErrVersion) {
		return fileFault(path, err)
	}
	if err != nil {
		return damaged(path, err)
	}
	return nil
}

// checkContent reads every page, and every entry: the rest of the store relies on their form.
func checkContent(tx *bbolt.Tx) (err error) {
	for fault := range tx.Check() {
		err = errors.Join(err, fault)
	}
	if err != nil {
		return err
	}
	if err := checkBuckets(tx); err != nil {
		return err
	}
	revision := revisionOf(tx)
	return tx.Bucket(entriesBucket).ForEach(func(key, value []byte) error {
		if len(value) < storedHead || parseStored(value).revision > revision {
			return fmt.Errorf("entry %q is none", key)
		}
		return nil
	})
}

// checkBuckets refuses entries in another form. What else a later version keeps is passed over, so that the way back to
// this one stays open.
func checkBuckets(tx *bbolt.Tx) error {
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if bytes.HasPrefix(name, []byte("entries")) && !bytes.Equal(name, entriesBucket) {
			return fmt.Errorf("bucket %q: %w", name, ErrVersion)
		}
		return nil
	})
	for _, name := range [][]byte{entriesBucket, leasesBucket, metaBucket} {
		if err == nil && tx.Bucket(name) == nil {
			err = fmt.Errorf("bucket %q is missing", name)
		}
	}
	return err
}

func damaged(path string, err error) error {
	return fault.Wrap(fault.Internal, fmt.Errorf("store %s is damaged: %w; running pods keep their network as it is. "+
		"To go on, restore the file, or drain the node, move the file away and start the agent", path, err))
}

// fileFault says what to do about an error of the file.
func fileFault(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("store %s: %w", path, ErrInUse)
	case errors.Is(err, ErrVersion):
		return fmt.Errorf("store %s: %w; start that version, or drain the node, move the file away and start this one", path, err)
	}
	return fault.Wrap(fault.Unavailable, fmt.Errorf("store %s: %w", path, err))
}
