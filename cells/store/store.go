package store

import (
	"context"
	"time"
)

// Store is the shared state.
type Store interface {
	// Get returns the entry, or [ErrNotFound].
	Get(ctx context.Context, key string) (Entry, error)
	// List returns the entries below prefix by key, as they were together at the revision: Watch goes on from it. A
	// prefix ends in a slash; "" is everything.
	List(ctx context.Context, prefix string) (entries []Entry, revision int64, err error)
	// Watch tells every change below prefix after the revision, in order. 0 begins with a [Resync], and so does a revision
	// that is gone, or that has not been yet. The channel is closed when ctx ends, or the store stops, and for no
	// other reason: a store that is away is waited for.
	Watch(ctx context.Context, prefix string, after int64) (<-chan Event, error)
	// Create makes the entry, or returns [ErrExists]. It goes when the lease ends, unless that is nil. A lease that is
	// over is [ErrLeaseLost].
	Create(ctx context.Context, key string, value []byte, lease Lease) (revision int64, err error)
	// CompareAndSwap replaces the value if the entry still has the revision, or returns [ErrConflict], also when it is
	// gone. The entry stays with its lease.
	CompareAndSwap(ctx context.Context, key string, revision int64, value []byte) (int64, error)
	// Delete removes the entry if it has the revision, or whatever is there when that is 0. What is not there is success;
	// another revision is [ErrConflict].
	Delete(ctx context.Context, key string, revision int64) error
	// Lease begins a lease of that time or longer, in whole seconds. The store renews it until Release or Stop.
	Lease(ctx context.Context, ttl time.Duration) (Lease, error)
}

// Service is a [Store] with a beginning and an end.
type Service interface {
	Store
	// Start opens the store. An etcd that is away is no error.
	Start(ctx context.Context) error
	// Stop ends the watches, keeps no lease any more, and returns when all calls have ended.
	Stop(ctx context.Context) error
}

// Lease is a time that is prolonged for as long as its holder lives.
type Lease interface {
	// Lost is closed when the lease is over and nobody released it: the store said so, or could not be reached for so long
	// that it may be. Its entries are gone, or soon will be.
	Lost() <-chan struct{}
	// CompareAndSwap is the Store's, and puts the entry under this lease in place of the one it had.
	CompareAndSwap(ctx context.Context, key string, revision int64, value []byte) (int64, error)
	// Release ends the lease; its entries go. After an error nobody renews it any more, so that they go in its time.
	Release(ctx context.Context) error
}

// Entry is a key and its value.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64 // of its last change
}

// EventType says what an [Event] tells.
type EventType string

// What a watch tells.
const (
	Put     EventType = "put"     // Entry is there, or has a new value
	Deleted EventType = "deleted" // Entry is gone; it has no value, and the revision of its end
	Resync  EventType = "resync"  // Entries are all there are; forget what else you know
)

// Event is what a watch tells. Revision is where another watch would go on: everything up to it has been told.
type Event struct {
	Type     EventType
	Entry    Entry   // of Put and Deleted
	Entries  []Entry // of Resync, by key
	Back     bool    // of Resync: the store is of a time before what was told, as one that is restored from a backup
	Revision int64
}
