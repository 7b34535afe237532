package store

import (
	"context"
	"errors"

	"porin.dev/porin/internal/fault"
)

// Store holds entries that the nodes of a cluster share.
type Store interface {
	// Get returns the entry, or [ErrNotFound].
	Get(ctx context.Context, key string) (Entry, error)
	// Page returns at most limit entries below prefix by key, beginning after the key after; more reports whether others follow.
	// Pages of one list are not of the same moment. A prefix ends in a slash; "" is everything.
	Page(ctx context.Context, prefix, after string, limit int) (entries []Entry, more bool, err error)
	// Watch sends all entries below prefix, in one or several [Resync]s, and then every change, in order. The channel is closed when
	// ctx ends or the store stops, and for no other reason: a store that is away is waited for.
	Watch(ctx context.Context, prefix string) (<-chan Event, error)
	// Create makes the entry, or returns [ErrExists].
	Create(ctx context.Context, key string, value []byte) error
	// Replace changes the value from was to value, or returns [ErrConflict], also when the entry is gone. A value that stays the
	// same is not written.
	Replace(ctx context.Context, key string, was, value []byte) error
	// Remove deletes the entry if its value is was, or returns [ErrConflict]. An entry that is gone is a success.
	Remove(ctx context.Context, key string, was []byte) error
	// Position says where the store is, by the answer of a quorum.
	Position(ctx context.Context) (Position, error)
}

// Service is a [Store] with a beginning and an end.
type Service interface {
	Store
	// Start opens the store. An etcd that is away is no error.
	Start(ctx context.Context) error
	// Stop ends the watches, and returns when all calls have ended.
	Stop(ctx context.Context) error
}

// Entry is a key and its value.
type Entry struct {
	Key   string
	Value []byte
}

// EventType is the type of an [Event].
type EventType string

// The types of events.
const (
	Put     EventType = "put"     // Entry is there, or has a new value
	Deleted EventType = "deleted" // Entry is gone; it has no value
	Resync  EventType = "resync"  // Entries are all there are, or a page of that; forget what else you know
)

// Event is what a watch sends.
type Event struct {
	Type    EventType
	Entry   Entry   // of Put and Deleted
	Entries []Entry // of Resync, by key
	// Continues says that the entries of the Resync before and these are of one list, as it was at one moment; More, that others follow
	// at once. A Resync after one with More that continues nothing begins the list anew.
	Continues, More bool

	revision int64 // of Put and Deleted
}

// Position is a place in the history of a store.
type Position struct {
	Store    string `json:"store"`    // identity of the store, as far as the backend has one
	Term     uint64 `json:"term"`     // of the election; 0 where there are none
	Revision uint64 `json:"revision"` // of the last change
}

// The errors that callers tell apart.
var (
	ErrNotFound = fault.New(fault.NotFound, "no such entry")
	ErrExists   = fault.New(fault.Conflict, "it is there already")
	ErrConflict = fault.New(fault.Conflict, "it has changed meanwhile")
	ErrTooLarge = fault.New(fault.TooLarge, "the value is larger than 64 KiB")
	ErrInvalid  = fault.New(fault.Invalid, "not a key of the store")
	// ErrUnavailable is returned when the store did not answer. Whether it did what was asked is open.
	ErrUnavailable = fault.New(fault.Unavailable, "the cluster's store is unreachable")
	// ErrVersion is returned for a value or a file in a form that this version of Porin does not know.
	ErrVersion = fault.New(fault.Internal, "it was written by another version of Porin")
	// ErrInUse is returned when another process has the file of the embedded store open.
	ErrInUse = fault.New(fault.Conflict, "another process has it open; one agent a store-dir: end the other one or give this one its own")
)

var (
	// errGone is returned when the changes after a revision cannot be sent: they are no longer known, or the store was
	// rolled back.
	errGone       = errors.New("the revision is gone")
	errNotRunning = errors.New("it is starting or stopping")
	errNoAnswer   = errors.New("no answer in time")
)

// unavailable is [ErrUnavailable] of a store at a location, with the reason.
type unavailable struct {
	location string
	reason   error
}

func (u *unavailable) Error() string   { return u.location + " is unreachable: " + u.reason.Error() }
func (u *unavailable) Unwrap() []error { return []error{ErrUnavailable, u.reason} }

// reasonOf returns why the store did not answer, without its location.
func reasonOf(err error) error {
	if u, ok := errors.AsType[*unavailable](err); ok {
		return u.reason
	}
	return err
}
