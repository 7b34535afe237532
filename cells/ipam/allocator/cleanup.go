package allocator

import (
	"net/netip"
	"time"
)

// cleanups follows the addresses whose last owner is gone, and that need a cleanup. It is not safe for
// concurrent use.
type cleanups struct {
	wake   func() // nil: no cleanup runs
	number uint64 // of the last release
}

// rest keeps an address back for a while from a time on.
func (c *cleanups) rest(e *address, since time.Duration) {
	c.number++
	e.rest(since, c.number, c.wake != nil)
	if c.wake != nil {
		c.wake()
	}
}

// done marks a release as cleaned up, if it is the address's last one.
func (c *cleanups) done(e *address, number uint64) {
	if e != nil && e.release == number && e.state == uncleaned {
		e.removeFromList()
		e.enter(resting)
	}
}

// Cleanup is the allocator's interface for the removal of other state of an address whose owner is gone, such as
// tracked connections. From [Allocator.Cleanup] on a released address is not given out before its cleanup is done.
type Cleanup struct{ a *Allocator }

// Released is an address that was released, and when: another release has another number.
type Released struct {
	Addr   netip.Addr
	number uint64
}

// Cleanup returns that side, for the one caller who cleans up. It calls wake at each release, with a lock held: wake
// does not block, and does not call back.
func (a *Allocator) Cleanup(wake func()) Cleanup {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.core.cleanups.wake = wake
	return Cleanup{a}
}

// Pending returns what was released and is not cleaned up, in no order.
func (c Cleanup) Pending() (all []Released) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	c.a.core.pools.eachList(func(l *freeList) {
		for e := l.uncleaned.head; e != nil; e = e.next {
			all = append(all, Released{e.addr, e.release})
		}
	})
	return all
}

// Done says that these are cleaned up, or cannot be. They may be given out from the end of their quarantine on.
func (c Cleanup) Done(all []Released) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	for _, r := range all {
		c.a.core.cleanups.done(c.a.core.pools.index.known(r.Addr), r.number)
	}
	c.a.core.expire(time.Since(c.a.start))
}
