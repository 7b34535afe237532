// Package restored is the barrier behind which everything of an earlier life of the agent is there again, or held. Code
// that gives out new resources, or judges existing ones, waits for it.
package restored

import (
	"context"
	"sync"
)

// Barrier opens once, and stays open. Its methods may be called concurrently.
type Barrier struct {
	open sync.Once
	done chan struct{}
}

// New returns a barrier that is closed.
func New() *Barrier { return &Barrier{done: make(chan struct{})} }

// Opened returns a barrier that is open: for a program that restores nothing.
func Opened() *Barrier {
	b := New()
	b.Open()
	return b
}

// Open lets all pass. The cell that restores last calls it.
func (b *Barrier) Open() { b.open.Do(func() { close(b.done) }) }

// Done is closed when the barrier is open.
func (b *Barrier) Done() <-chan struct{} { return b.done }

// Wait returns nil when the barrier is open, and the error of ctx when that ends before.
func (b *Barrier) Wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// IsOpen reports whether everything is restored.
func (b *Barrier) IsOpen() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}
