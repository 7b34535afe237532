package allocator

import "time"

// Release frees all that the owner has, but for what is reserved, and puts it in quarantine. It is false when that was nothing.
func (a *Allocator) Release(owner Handle) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.expire()
	r := a.owners[owner]
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
	r := a.owners[allocation.Owner]
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
	if r := a.owners[owner]; r != nil {
		r.Kept = true
	}
}

// releaseRecord frees what a record has, at a time. Nothing was released later.
func (a *Allocator) releaseRecord(r *record, at time.Duration) {
	delete(a.owners, r.Owner)
	a.countPodHandle(r.PodHandle, -1)
	a.endReservation(r)
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
	a.releasePodHandle(r, at)
	*r = record{}
	a.spare = append(a.spare, r)
}

// countPodHandle counts the owners that name a pod's handle, so that nobody needs to look for the last.
func (a *Allocator) countPodHandle(h Handle, by int) {
	if h == "" {
		return
	}
	if a.podHandles[h] += by; a.podHandles[h] == 0 {
		delete(a.podHandles, h)
	}
}

// releasePodHandle frees what the pod's handle of an owner has that is gone, if no other owner names it and it is not reserved. What that handle has
// got later is for an owner that is yet to come.
func (a *Allocator) releasePodHandle(r *record, at time.Duration) {
	if r.PodHandle == "" || a.podHandles[r.PodHandle] > 0 {
		return
	}
	if pod := a.owners[r.PodHandle]; pod != nil && pod.Seq < r.Seq && !pod.Reserved {
		a.releaseRecord(pod, at)
	}
}
