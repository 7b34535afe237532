package ipam

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/ipam/allocator"
)

// ConnectionCleaner deletes what the kernel tracks of connections from and to addresses, in both directions.
type ConnectionCleaner interface {
	Forget(addrs []netip.Addr) error
}

// Between two batches at least cleanPause passes, and cleanShare times as long as the last one took, so that deleting takes a
// twentieth of one CPU at the most, however many connections there are. When an allocation has found nothing free it is half.
const (
	cleanPause = 100 * time.Millisecond
	cleanShare = 20
)

// Cleaner deletes the tracked connections of released addresses in the background, of all that were released meanwhile at once. A
// DEL does not wait for it, and the allocator gives no address out before it. It sleeps while nothing was released.
type Cleaner struct {
	connections ConnectionCleaner
	cleanup     allocator.Cleanup
	wake        chan struct{} // has room for one: it is before what the cleaner has read
	urgent      chan struct{} // so has this
	log         *slog.Logger
	failures    *CleanFailures
	cancel      context.CancelFunc
	done        sync.WaitGroup
}

// CleanFailures counts the batches that failed.
type CleanFailures struct{ atomic.Int64 }

// NewCleaner returns a Cleaner that is not started. From now on a released address waits for it: who makes one starts it.
func NewCleaner(a *allocator.Allocator, connections ConnectionCleaner, failures *CleanFailures, log *slog.Logger) *Cleaner {
	c := &Cleaner{connections: connections, failures: failures, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), log: log}
	c.cleanup = a.Cleanup(func(urgent bool) {
		notify(c.wake)
		if urgent {
			notify(c.urgent)
		}
	})
	return c
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Start begins it. It is to be called once at the most.
func (c *Cleaner) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.done.Go(func() { c.run(ctx) })
}

// Stop ends it, and waits for the batch that is under way.
func (c *Cleaner) Stop() {
	if c.cancel != nil {
		c.cancel()
		c.done.Wait()
	}
}

func (c *Cleaner) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		began := time.Now()
		c.Clean()
		took := time.Since(began)
		least := max(cleanPause, took)
		pause(ctx, least, nil)
		pause(ctx, cleanShare*took-least, c.urgent)
	}
}

// Clean does once, now, what is to be done. When the deletion fails the quarantine is all the rest that the addresses get.
func (c *Cleaner) Clean() {
	released := c.cleanup.Pending()
	if len(released) == 0 {
		return
	}
	addrs := make([]netip.Addr, len(released))
	for i, r := range released {
		addrs[i] = r.Addr
	}
	if err := c.connections.Forget(addrs); err != nil {
		c.failures.Add(1)
		c.log.Warn("cannot delete tracked connections of released addresses; they may be given out after their quarantine all the same", "addresses", len(addrs), "error", err)
	}
	c.cleanup.Done(released)
}
