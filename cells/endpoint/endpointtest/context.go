package endpointtest

import (
	"context"
	"sync"
	"testing"
)

// countdown is a context that ends when it has been looked at so many times.
type countdown struct {
	context.Context
	end context.CancelFunc

	mu   sync.Mutex // guards the field below
	left int
}

func endAfter(parent context.Context, looks int) *countdown {
	c := &countdown{left: looks}
	c.Context, c.end = context.WithCancel(parent)
	if looks == 0 {
		c.end()
	}
	return c
}

// look counts, and ends the context in time.
func (c *countdown) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left <= 0 {
		c.end()
	}
}

// Done implements context.Context.
func (c *countdown) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err implements context.Context.
func (c *countdown) Err() error {
	c.look()
	return c.Context.Err()
}

// over reports whether the context has ended, without looking.
func (c *countdown) over() bool { return c.Context.Err() != nil }

// ended returns a context that has ended.
func ended(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
