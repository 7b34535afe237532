package main

import (
	"context"
	"strings"
	"sync/atomic"

	"porin.dev/porin/cells/store"
)

// counted is a store that counts what nodes ask of it. Watches are none of it.
type counted struct {
	store.Service
	reads, writes atomic.Int64
	creates       atomic.Int64 // of blocks, whether they succeed or not
	claims        atomic.Int64 // creates that succeeded
	deletes       atomic.Int64 // of blocks
	lists, pages  atomic.Int64 // of blocks: a long list has several pages
}

func (c *counted) calls() int64 { return c.reads.Load() + c.writes.Load() }

func (c *counted) Get(ctx context.Context, key string) (store.Entry, error) {
	c.reads.Add(1)
	return c.Service.Get(ctx, key)
}

func (c *counted) Page(ctx context.Context, prefix, after string, limit int) ([]store.Entry, bool, error) {
	c.reads.Add(1)
	if strings.HasPrefix(prefix, blocksPrefix) {
		c.pages.Add(1)
		if after == "" {
			c.lists.Add(1)
		}
	}
	return c.Service.Page(ctx, prefix, after, limit)
}

func (c *counted) Position(ctx context.Context) (store.Position, error) {
	c.reads.Add(1)
	return c.Service.Position(ctx)
}

func (c *counted) Create(ctx context.Context, key string, value []byte) error {
	c.writes.Add(1)
	err := c.Service.Create(ctx, key, value)
	if strings.HasPrefix(key, blocksPrefix) {
		c.creates.Add(1)
		if err == nil {
			c.claims.Add(1)
		}
	}
	return err
}

func (c *counted) Replace(ctx context.Context, key string, was, value []byte) error {
	c.writes.Add(1)
	return c.Service.Replace(ctx, key, was, value)
}

func (c *counted) Remove(ctx context.Context, key string, was []byte) error {
	c.writes.Add(1)
	if strings.HasPrefix(key, blocksPrefix) {
		c.deletes.Add(1)
	}
	return c.Service.Remove(ctx, key, was)
}
