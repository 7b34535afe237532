package ipam

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/task"
)

// ConnectionCleaner deletes what the kernel tracks of connections from and to addresses, in both directions.
type ConnectionCleaner interface {
	Forget(addrs []netip.Addr) error
}

// Between two batches at least cleanPause passes, and cleanShare times as long as the last one took, so that deleting
// takes a twentieth of one CPU at the most, however many connections there are. When an allocation has found nothing
// free it is half.
const (
	cleanPause = 100 * time.Millisecond
	cleanShare = 20
)

// Cleaner deletes the tracked connections of released addresses in the background, of all that were released meanwhile
// at once. A DEL does not wait for it, and the allocator gives no address out before it. It sleeps while nothing was
// released.
type Cleaner struct {
	connections ConnectionCleaner
	cleanup     allocator.Cleanup
	urgent      chan struct{} // holds one token while an allocation has found nothing free
	failures    *CleanFailures
	task        *task.Task
}

// CleanFailures counts the batches that failed.
type CleanFailures struct{ atomic.Int64 }

// NewCleaner returns a Cleaner whose task is not started. From now on a released address waits for it: who makes one
// starts it.
func NewCleaner(a *allocator.Allocator, connections ConnectionCleaner, failures *CleanFailures, log *slog.Logger) *Cleaner {
	c := &Cleaner{connections: connections, failures: failures, urgent: make(chan struct{}, 1)}
	c.task = task.Every(log, task.Round{Name: "ipam-clean-connections", Run: c.cleanAndPause})
	c.cleanup = a.Cleanup(func(urgent bool) {
		c.task.Trigger() // before what the cleaner reads
		if urgent {
			task.Wake(c.urgent)
		}
	})
	return c
}

// Task is the cleaner's loop.
func (c *Cleaner) Task() *task.Task { return c.task }

func (c *Cleaner) cleanAndPause(ctx context.Context) error {
	began := time.Now()
	err := c.Clean()
	took := time.Since(began)
	least := max(cleanPause, took)
	pause(ctx, least, nil)
	pause(ctx, cleanShare*took-least, c.urgent)
	return err
}

// Clean runs one round now. When the deletion fails the addresses rest for the quarantine only.
func (c *Cleaner) Clean() error {
	released := c.cleanup.Pending()
	if len(released) == 0 {
		return nil
	}
	addrs := make([]netip.Addr, len(released))
	for i, r := range released {
		addrs[i] = r.Addr
	}
	err := c.connections.Forget(addrs)
	if err != nil {
		c.failures.Add(1)
		err = fmt.Errorf("delete the tracked connections of %d released addresses, which may be given out after their quarantine all the same: %w", len(addrs), err)
	}
	c.cleanup.Done(released)
	return err
}

// pause returns after a time, or early, or when ctx ends.
func pause(ctx context.Context, wait time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-timer.C:
	}
}
