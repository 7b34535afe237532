package allocator

import "time"

// handOver makes what is reserved an endpoint's. What is reserved permanently is lent.
func (a *Allocator) handOver(r *record, owner, pod Handle, since time.Time) {
	lender, lent := r.Owner, loan{}
	for _, e := range r.addresses {
		delete(a.cleanups.returned, e) // an endpoint that had the address before the restart has it
	}
	if r.until == forever {
		lent = loan{r.token, r.Since}
	}
	a.owners.remove(r)
	a.reservations.remove(r)
	r.Owner, r.PodHandle, r.Since = owner, pod, since
	a.owners.insert(r)
	if lent.token != "" {
		a.reservations.lend(r, lender, lent)
	}
}

// returnLoan gives the addresses of an owner that is gone back to who has reserved them. Nobody can take them over before their
// cleanup is done; the quarantine is for other owners.
func (a *Allocator) returnLoan(r *record) {
	lender, lent, addresses := r.ReservedBy, r.loan, r.addresses
	allocation := Allocation{Owner: lender, Pool: r.Pool, Addresses: r.Addresses, Since: lent.since}
	a.reservations.endLoan(r)
	for _, e := range addresses {
		if e != nil {
			a.cleanups.await(e)
		}
	}
	a.reservations.add(a.owners.add(allocation, addresses), reservationOptions{lent.token, Permanent}, 0, time.Time{})
}

// isLive reports whether there is a reservation with the token, lent or not.
func (a *Allocator) isLive(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reservations.find(token) != nil || a.reservations.borrower(token) != nil
}
