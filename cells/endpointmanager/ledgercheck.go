package endpointmanager

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"porin.dev/porin/internal/fault"
)

// lockTimeout is how long the ledger waits for the process that has it open: an agent that is just ending.
const lockTimeout = 2 * time.Second

// checkLedgerFile reads the whole file before it is opened for writing. A file that is shorter than it says it is
// would end the process with SIGBUS at the first page that is missing, for bbolt maps it.
func checkLedgerFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	if info.Size() == 0 {
		return damaged(path, errors.New("it is empty"))
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if _, unread := errors.AsType[*fs.PathError](err); unread || errors.Is(err, bolterrors.ErrTimeout) {
		return ledgerFault(path, err)
	}
	if err != nil {
		return damaged(path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("%d bytes of %d are there", info.Size(), tx.Size())
		}
		return walk(tx)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return damaged(path, err)
	}
	return nil
}

// makeLedger makes a ledger under another name, so that a file of this name is whole whenever the agent is killed.
func makeLedger(path string) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ledgerFault(path, err)
	}
	db, err := bbolt.Open(temporary, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return ledgerFault(path, err)
	}
	return nil
}

// walk reads every page; bbolt reports one that is not what its parent says it is.
func walk(tx *bbolt.Tx) (err error) {
	for fault := range tx.Check() {
		err = errors.Join(err, fault)
	}
	return err
}

// errOtherVersion is that the ledger holds what this agent does not know, and must not take for nothing.
var errOtherVersion = errors.New("it was written by another version of porin-agent")

// checkBuckets refuses attachments in another form. What else a later version keeps is passed over, so that the way
// back to this one stays open.
func checkBuckets(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if bytes.HasPrefix(name, []byte("attachments")) && !bytes.Equal(name, attachmentsBucket) {
			return fmt.Errorf("bucket %q: %w", name, errOtherVersion)
		}
		return nil
	})
}

func damaged(path string, err error) error {
	return fault.Wrap(fault.Internal, fmt.Errorf("ledger %s is damaged: %w; running pods keep their network as it is. "+
		"To go on, restore the file, or drain the node, move the file away and start the agent", path, err))
}
