package allocator

import "time"

// Release frees all that the owner has, but for what is reserved, and puts it in quarantine. It is false when that was nothing.
func (a *Allocator) Release(owner Handle) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.expire()
	r := a.owners.records[owner]
	ok := r != nil && !r.Reserved
	if ok {
		a.releaseRecord(r, now)
	}
	return ok
}

// ReleaseListed is Release of what List or Allocate has shown, if the owner still has just that, by its Seq too, and has not
// asked for it again.
func (a *Allocator) ReleaseListed(allocation Allocation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.expire()
	r := a.owners.records[allocation.Owner]
	ok := r != nil && r.Allocation == allocation && !r.Reserved
	if ok {
		a.releaseRecord(r, now)
	}
	return ok
}

// Keep records that an owner is gone and that what it has is not released on purpose.
func (a *Allocator) Keep(owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.owners.records[owner]; r != nil {
		r.Kept = true
	}
}

// releaseRecord frees what a record has, at a time. Nothing was released later.
func (a *Allocator) releaseRecord(r *record, at time.Duration) {
	a.owners.remove(r)
	a.reservations.remove(r)
	for _, e := range r.addresses {
		switch {
		case r.loan.token != "":
		case e == nil:
		case r.External:
			e.block.list.expire(at)
			e.yield(at)
		default:
			a.cleanups.rest(e, at)
		}
	}
	if r.loan.token != "" {
		a.returnLoan(r)
	}
	if pod := a.owners.left(r); pod != nil {
		a.releaseRecord(pod, at)
	}
	a.owners.recycle(r)
}
