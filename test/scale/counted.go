package main

import (
	"context"
	"strings"
	"sync/atomic"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
)

// counted are the calls that a node makes of a backend. Watches are none of it.
type counted struct {
	reads, writes atomic.Int64
	creates       atomic.Int64 // of blocks, whether they succeed or not
	lists         atomic.Int64 // of blocks
}

func (c *counted) calls() int64 { return c.reads.Load() + c.writes.Load() }

// backend returns the backend, counted.
func (c *counted) backend(b cluster.Backend) cluster.Backend {
	return clustertest.Intercept(b, func(ctx context.Context, what string, call func(context.Context) error) error {
		_, verb, _ := strings.Cut(what, ".")
		switch verb {
		case "Get", "Recent", "All":
			c.reads.Add(1)
		default:
			c.writes.Add(1)
		}
		switch what {
		case "Blocks.Create":
			c.creates.Add(1)
		case "Blocks.All":
			c.lists.Add(1)
		}
		return call(ctx)
	})
}
