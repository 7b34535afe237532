package store

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/boltfile"
	"porin.dev/porin/internal/fault"
)

// storeFile is the embedded store's file. An empty one in place of one that is damaged would give out blocks that are in use.
var storeFile = boltfile.Kind{Name: "the store", Fill: makeBuckets, Check: checkBuckets, Fault: fileFault, Damaged: damaged}

func makeBuckets(tx *bbolt.Tx) (err error) {
	for _, name := range [][]byte{entriesBucket, metaBucket} {
		_, one := tx.CreateBucket(name)
		err = errors.Join(err, one)
	}
	return err
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
	for _, name := range [][]byte{entriesBucket, metaBucket} {
		if err == nil && tx.Bucket(name) == nil {
			err = fmt.Errorf("bucket %q is missing", name)
		}
	}
	if err != nil {
		return err
	}
	if first, _ := tx.Bucket(entriesBucket).Cursor().First(); first != nil && len(tx.Bucket(metaBucket).Get(revisionKey)) != 8 {
		return errors.New("it has entries and no revision")
	}
	return nil
}

// damaged says what to do about a file whose content is not what it was, or is another version's.
func damaged(path string, err error) error {
	if errors.Is(err, ErrVersion) {
		return fileFault(path, err)
	}
	return fault.Wrap(fault.Internal, fmt.Errorf("store %s is damaged: %w; running pods keep their network as it is. "+
		"To go on, restore the file, or drain the node, move the file away and start the agent", path, err))
}

// fileFault says what to do about an error of the file.
func fileFault(path string, err error) error {
	switch {
	case errors.Is(err, boltfile.ErrInUse):
		return fmt.Errorf("store %s: %w", path, ErrInUse)
	case errors.Is(err, ErrVersion):
		return fmt.Errorf("store %s: %w; start that version, or drain the node, move the file away and start this one", path, err)
	}
	return fault.Wrap(fault.Unavailable, fmt.Errorf("store %s: %w", path, err))
}
