package main

import (
	"context"
	"strings"
	"sync/atomic"

	"porin.dev/porin/cells/store"
)

// counted is a store that counts what one node asks of it.
type counted struct {
	store.Service
	calls, writes, claims, lists atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string) (store.Entry, error) {
	c.calls.Add(1)
	return c.Service.Get(ctx, key)
}

func (c *counted) Page(ctx context.Context, prefix, after string, limit int) ([]store.Entry, bool, error) {
	c.calls.Add(1)
	c.lists.Add(1)
	return c.Service.Page(ctx, prefix, after, limit)
}

func (c *counted) Position(ctx context.Context) (store.Position, error) {
	c.calls.Add(1)
	return c.Service.Position(ctx)
}

func (c *counted) Create(ctx context.Context, key string, value []byte) error {
	c.write(key)
	return c.Service.Create(ctx, key, value)
}

func (c *counted) Replace(ctx context.Context, key string, was, value []byte) error {
	c.write(key)
	return c.Service.Replace(ctx, key, was, value)
}

func (c *counted) Remove(ctx context.Context, key string, was []byte) error {
	c.write(key)
	return c.Service.Remove(ctx, key, was)
}

func (c *counted) write(key string) {
	c.calls.Add(1)
	c.writes.Add(1)
	if strings.HasPrefix(key, blocksPrefix) {
		c.claims.Add(1)
	}
}
