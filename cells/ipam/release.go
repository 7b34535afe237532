package ipam

import (
	"net/netip"
	"time"
)

// Release implements [Allocator].
func (a *allocator) Release(owner Handle) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	r := a.owners[owner]
	if r != nil {
		a.release(r, now)
	}
	return r != nil
}

// ReleaseListed implements [Allocator].
func (a *allocator) ReleaseListed(allocation Allocation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	r := a.owners[allocation.Owner]
	ok := r != nil && r.Allocation == allocation
	if ok {
		a.release(r, now)
	}
	return ok
}

// Keep implements [Allocator].
func (a *allocator) Keep(owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.owners[owner]; r != nil {
		r.Kept = true
	}
}

// List implements [Allocator].
func (a *allocator) List() []Allocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	list := make([]Allocation, 0, len(a.owners))
	for _, r := range a.owners {
		list = append(list, r.Allocation)
	}
	return list
}

// Quarantine implements [Allocator].
func (a *allocator) Quarantine(addr netip.Addr, released time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// From now on the clock that nobody sets counts, and what is in the future is now.
	since := a.tidy() - max(0, time.Since(released))
	if s := a.index.slot(addr); s == nil {
		a.remember(addr, since)
	} else if s.state != used {
		s.block.shelf.rest(s, since)
	}
}
