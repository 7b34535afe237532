package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/store"
)

// counted is a store that counts what one node asks of it. The renewals of leases are the store's own business.
type counted struct {
	store.Store
	calls, writes, claims atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string) (store.Entry, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counted) List(ctx context.Context, prefix string) ([]store.Entry, int64, error) {
	c.calls.Add(1)
	return c.Store.List(ctx, prefix)
}

func (c *counted) Create(ctx context.Context, key string, value []byte, lease store.Lease) (int64, error) {
	c.write(key)
	return c.Store.Create(ctx, key, value, lease)
}

func (c *counted) CompareAndSwap(ctx context.Context, key string, revision int64, value []byte) (int64, error) {
	c.write(key)
	return c.Store.CompareAndSwap(ctx, key, revision, value)
}

func (c *counted) Delete(ctx context.Context, key string, revision int64) error {
	c.write(key)
	return c.Store.Delete(ctx, key, revision)
}

func (c *counted) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	c.write("")
	return c.Store.Lease(ctx, ttl)
}

func (c *counted) write(key string) {
	c.calls.Add(1)
	c.writes.Add(1)
	if strings.HasPrefix(key, blocksPrefix) {
		c.claims.Add(1)
	}
}
