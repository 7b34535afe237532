package ipam

import "time"

// nameLegacy counts the owners that name a legacy handle, so that nobody needs to look for the last.
func (a *allocator) nameLegacy(legacy Handle, by int) {
	if legacy == "" {
		return
	}
	if a.legacies[legacy] += by; a.legacies[legacy] == 0 {
		delete(a.legacies, legacy)
	}
}

// releaseLegacy frees what the legacy handle of an owner has that is gone, if no other owner names it. What that handle has
// got later is for an owner that is yet to come.
func (a *allocator) releaseLegacy(r *record, at time.Duration) {
	if r.Legacy == "" || a.legacies[r.Legacy] > 0 {
		return
	}
	if legacy := a.owners[r.Legacy]; legacy != nil && legacy.Seq < r.Seq {
		a.release(legacy, at)
	}
}
