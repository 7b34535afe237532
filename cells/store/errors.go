package store

import (
	"errors"
	"fmt"

	"porin.dev/porin/internal/fault"
)

// The faults that callers tell apart.
var (
	ErrNotFound = fault.New(fault.NotFound, "no such entry")
	ErrExists   = fault.New(fault.Conflict, "it is there already")
	ErrConflict = fault.New(fault.Conflict, "it has changed meanwhile")
	ErrTooLarge = fault.New(fault.TooLarge, "the value is larger than 64 KiB")
	ErrInvalid  = fault.New(fault.Invalid, "not a key of the store")
	// ErrLeaseLost is that a lease is over, or is none of this store.
	ErrLeaseLost = fault.New(fault.Conflict, "the lease is over")
	// ErrUnavailable is that the store did not answer. Whether it did what was asked is open.
	ErrUnavailable = fault.New(fault.Unavailable, "the cluster's store is unreachable")
	// ErrVersion is that a value was written by a later version of Porin.
	ErrVersion = fault.New(fault.Internal, "it was written by a later version of Porin")
	// ErrInUse is that another process has the file of the embedded store open.
	ErrInUse = fault.New(fault.Conflict, "another process has it open; one agent a store-dir: end the other one or give this one its own")
)

var (
	// errGone is that a history does not reach back to the revision any more.
	errGone = errors.New("the revision is gone")
	// errBack is that the store was set back to before the revision.
	errBack = fmt.Errorf("%w: the store was set back", errGone)
	// errNotRunning is a call before Start or after Stop.
	errNotRunning = errors.New("it is starting or stopping")
	errNoAnswer   = errors.New("no answer in time")
)
