package store

import (
	"context"
	"time"
)

// backend is where the state is. Keys and values that reach it are valid, contexts have an end, calls come only between
// start and stop; it may return a context's error as it is.
type backend interface {
	// where says which store it is, for people.
	where() string
	start(ctx context.Context) error
	// stop is called when no call is under way any more.
	stop() error

	get(ctx context.Context, key string) (Entry, error)
	list(ctx context.Context, prefix string) ([]Entry, int64, error)
	// tail begins to listen to the changes after the revision, which is above 0.
	tail(ctx context.Context, prefix string, after int64) tail
	// create and swap put the entry under the lease, unless that is 0; swap leaves it under the one it has then.
	create(ctx context.Context, key string, value []byte, lease int64) (int64, error)
	swap(ctx context.Context, key string, revision int64, value []byte, lease int64) (int64, error)
	remove(ctx context.Context, key string, revision int64) error

	// grant begins a lease, and returns the time it really has. renew begins that time anew, and revoke ends it: both
	// return ErrLeaseLost when it is over.
	grant(ctx context.Context, ttl time.Duration) (id int64, granted time.Duration, err error)
	renew(ctx context.Context, id int64) (time.Duration, error)
	revoke(ctx context.Context, id int64) error
	// leave is that nobody renews the lease any more. It does not block.
	leave(id int64)
}
