package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/boltfile"
	"porin.dev/porin/internal/fault"
)

// The buckets of the file: records by key, and the count of the changes so far. Other buckets are a later version's.
var (
	entriesBucket = []byte("entries-v2")
	metaBucket    = []byte("meta-v1")
	revisionKey   = []byte("revision")
)

var storeFile = boltfile.Kind{
	Name: "the store", Fill: makeBuckets, Check: checkBuckets, Fault: fileFault, Damaged: damaged,
}

func makeBuckets(tx *bbolt.Tx) error {
	_, entries := tx.CreateBucket(entriesBucket)
	_, meta := tx.CreateBucket(metaBucket)
	return errors.Join(entries, meta)
}

func checkBuckets(tx *bbolt.Tx) error {
	entries, meta := tx.Bucket(entriesBucket), tx.Bucket(metaBucket)
	if entries == nil || meta == nil {
		return errors.New("a bucket is missing, or another version of Porin has written it")
	}
	if key, _ := entries.Cursor().First(); key != nil && len(meta.Get(revisionKey)) != 8 {
		return errors.New("it has entries and no revision")
	}
	return nil
}

func damaged(path string, err error) error {
	return fault.Wrap(fault.Internal, fmt.Errorf("store %s is damaged: %w; running pods keep their network as it is. "+
		"To go on, restore the file, or drain the node, move the file away and start the agent", path, err))
}

func fileFault(path string, err error) error {
	kind := fault.Unavailable
	if errors.Is(err, boltfile.ErrInUse) {
		kind = fault.Conflict
	}
	return fault.Wrap(kind, fmt.Errorf("store %s: %w", path, err))
}

// revisionOf returns the count of the changes so far; a new file has 1.
func revisionOf(tx *bbolt.Tx) uint64 {
	if value := tx.Bucket(metaBucket).Get(revisionKey); len(value) == 8 {
		return binary.BigEndian.Uint64(value)
	}
	return 1
}
