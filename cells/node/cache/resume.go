package cache

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
)

// pageSize is how many records are in memory at once while a watch gets them.
const pageSize = 500

// errChanged says that the file is not what it was.
var errChanged = errors.New("the cache of other nodes has changed meanwhile")

// resume returns what a watch of the records of a bucket may go on from.
func resume[T any](c *Cache, bucket []byte, kind cluster.Kind[T], mark func(header) cluster.Mark, now func(context.Context) (Origin, error)) (r cluster.Resume[T]) {
	h := c.read(func(*bbolt.Tx) error { return nil })
	if h.UpdatedAt.IsZero() || mark(h) == "" {
		return r
	}
	r.Mark = mark(h)
	r.Check = func(ctx context.Context) error {
		origin, err := now(ctx)
		if err == nil && origin != h.Origin {
			err = cluster.ErrOtherOrigin
		}
		return err
	}
	r.Pages = func(page func([]T)) error {
		// A transaction a page: the caller of page may wait for a reader of the file.
		for behind, more := "", true; more; more = behind != "" {
			var some []T
			now := c.read(func(tx *bbolt.Tx) (err error) {
				c.used = true
				some, behind, err = readSome(tx.Bucket(bucket), kind, behind, pageSize)
				return err
			})
			if mark(now) != r.Mark || now.Origin != h.Origin {
				return errChanged
			}
			page(some)
		}
		return nil
	}
	return r
}
