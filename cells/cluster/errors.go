package cluster

import (
	"errors"
	"iter"

	"porin.dev/porin/internal/fault"
)

// The errors that callers tell apart.
var (
	ErrNotFound = fault.New(fault.NotFound, "no such record")
	ErrExists   = fault.New(fault.Conflict, "the record exists")
	ErrConflict = fault.New(fault.Conflict, "the record has changed")
	// ErrUnreadable is returned for a record that a later version has written, or that is damaged. Lists tell it and go
	// on: with it comes what the name of the record says, the ID of a node, the name of a pool or the CIDR of a block.
	ErrUnreadable = fault.New(fault.Internal, "a record cannot be read")
	// ErrOtherOrigin says that the store is another one than the records are of, or was restored since.
	ErrOtherOrigin = fault.New(fault.Conflict, "the store is another one, or was restored since")
	// ErrUnavailable is returned when the store did not answer. The change may have been made.
	ErrUnavailable = fault.New(fault.Unavailable, "the cluster's store cannot be reached")
)

// Readable leaves out the records that cannot be read.
func Readable[T any](list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range list {
			if !errors.Is(err, ErrUnreadable) && !yield(item, err) {
				return
			}
		}
	}
}
