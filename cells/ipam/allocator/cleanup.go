package allocator

import "net/netip"

// Cleanup is the side of the allocator for whoever removes what others still have of an address whose owner is gone, such as
// tracked connections. From [Allocator.Cleanup] on a released address is given to nobody before its cleanup is done.
type Cleanup struct{ a *Allocator }

// Released is an address that was released, and when: another release has another number.
type Released struct {
	Addr   netip.Addr
	number uint64
}

// Cleanup returns that side, for the one caller who cleans up. It calls wake at each release, and urgently when an
// allocation has found nothing free. That is with a lock held: wake does not block, and does not call back.
func (a *Allocator) Cleanup(wake func(urgent bool)) Cleanup {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakeCleanup = wake
	return Cleanup{a}
}

// Pending returns what was released and is not cleaned up, in no order.
func (c Cleanup) Pending() (all []Released) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	c.a.eachList(func(l *freeList) {
		for e := l.uncleaned.head; e != nil; e = e.next {
			all = append(all, Released{e.addr, e.release})
		}
	})
	for e := range c.a.returned {
		all = append(all, Released{e.addr, e.release})
	}
	return all
}

// Done says that these are cleaned up, or cannot be. They may be given out from the end of their quarantine on.
func (c Cleanup) Done(all []Released) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	for _, r := range all {
		e := c.a.index.known(r.Addr)
		if e == nil || e.release != r.number {
			continue
		}
		delete(c.a.returned, e)
		if e.state == uncleaned {
			e.leave()
			e.enter(resting)
		}
	}
	c.a.expire()
}

// eachList calls visit for every free list there is.
func (a *Allocator) eachList(visit func(*freeList)) {
	for _, p := range a.order {
		for _, lists := range p.lists {
			for _, l := range lists {
				visit(l)
			}
		}
	}
	visit(a.index.outside.list)
}
