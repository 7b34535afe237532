package ledger

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/boltfile"
	"porin.dev/porin/internal/fault"
)

// ledgerKind is the ledger's file. An empty file in place of a damaged file would make every living endpoint of the
// node an orphan.
var ledgerKind = boltfile.Kind{Name: "ledger", Fault: ledgerFault, Damaged: Damaged}

// ErrRemoved is why a ledger is lost when its file is not there any more.
var ErrRemoved = errors.New("it was removed")

// ErrOtherVersion is returned when the ledger holds what this agent does not know, and must not take for nothing.
var ErrOtherVersion = errors.New("it was written by another version of porin-agent")

// checkBuckets refuses attachments in another form. What else a later version keeps is passed over, so that the way
// back to this one stays open.
func checkBuckets(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if bytes.HasPrefix(name, []byte("attachments")) && !bytes.Equal(name, attachmentsBucket) {
			return fmt.Errorf("bucket %q: %w", name, ErrOtherVersion)
		}
		return nil
	})
}

// Damaged says what to do about a ledger that holds what cannot be.
func Damaged(path string, err error) error {
	return fault.Wrap(fault.Internal, fmt.Errorf("ledger %s is damaged: %w; running pods keep their network as it is. "+
		"To go on, restore the file, or drain the node, move the file away and start the agent", path, err))
}
