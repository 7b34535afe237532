package allocator

import "time"

// loan is a permanent reservation of which an endpoint uses the addresses: it has them again when the endpoint releases them.
type loan struct {
	token string // "" for none
	since time.Time
}

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
	a.endReservation(r)
	r.Owner, r.PodHandle, r.Since = owner, pod, since
	a.owners.insert(r)
	if lent.token != "" {
		r.ReservedBy, r.loan = lender, lent
		a.lent[lender] = r
	}
}

// endLoan has the endpoint's addresses be reserved by nobody.
func (a *Allocator) endLoan(r *record) {
	delete(a.lent, r.ReservedBy)
	r.ReservedBy, r.loan = "", loan{}
}

// returnLoan gives the addresses of an owner that is gone back to who has reserved them. Nobody can take them over before their
// cleanup is done; the quarantine is for other owners.
func (a *Allocator) returnLoan(r *record) {
	lender, lent, addresses := r.ReservedBy, r.loan, r.addresses
	allocation := Allocation{Owner: lender, Pool: r.Pool, Addresses: r.Addresses, Since: lent.since}
	a.endLoan(r)
	for _, e := range addresses {
		if e != nil {
			a.cleanups.await(e)
		}
	}
	a.setReservation(a.owners.add(allocation, addresses), reservationOptions{lent.token, Permanent})
}

// borrower returns who uses what is reserved by the token; nil when nobody does.
func (a *Allocator) borrower(token string) *record {
	for _, r := range a.lent {
		if r.loan.token == token {
			return r
		}
	}
	return nil
}

// isLive reports whether there is a reservation with the token, lent or not.
func (a *Allocator) isLive(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reservation(token) != nil || a.borrower(token) != nil
}

// reservation returns the reservation of a token, or nil.
func (a *Allocator) reservation(token string) *record {
	for _, r := range a.reservations {
		if r.token == token {
			return r
		}
	}
	return nil
}
