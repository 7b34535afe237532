package allocator

import (
	"fmt"
	"net/netip"
	"time"
)

// core is the allocator without its lock and its clock: who has which address, and what there is to give out. It
// changes its parts together, so that they agree.
type core struct {
	pools        poolSet
	owners       owners
	reservations reservations
	cleanups     cleanups
	suspended    error // why nothing is given out; nil: it is
}

func newCore() core {
	return core{
		pools: newPoolSet(), owners: newOwners(),
		reservations: reservations{lent: map[Handle]*record{}}, cleanups: cleanups{returned: map[*address]bool{}},
	}
}

// expire ends what is over by now. Whatever looks at the state or changes it does so first.
func (c *core) expire(now time.Duration) {
	for r := c.reservations.ended(now); r != nil; r = c.reservations.ended(now) {
		c.release(r, r.until)
	}
	c.pools.expire(now)
}

// release frees what a record has, at a time. Nothing was released later.
func (c *core) release(r *record, at time.Duration) {
	c.owners.remove(r)
	c.reservations.remove(r)
	for _, e := range r.addresses {
		switch {
		case e == nil || r.loan.token != "": // what is lent goes back to its lender
		case r.External:
			e.block.list.expire(at)
			e.yield(at)
		default:
			c.cleanups.rest(e, at)
		}
	}
	if r.loan.token != "" {
		c.returnLoan(r)
	}
	if pod := c.owners.releasedWith(r); pod != nil {
		c.release(pod, at)
	}
	c.owners.recycle(r)
}

// handOver makes what is reserved an endpoint's. What is reserved permanently is lent.
func (c *core) handOver(r *record, owner, pod Handle, since time.Time) {
	lender, lent := r.Owner, loan{}
	for _, e := range r.addresses {
		delete(c.cleanups.returned, e) // an endpoint that had the address before the restart has it
	}
	if r.until == forever {
		lent = loan{r.token, r.Since}
	}
	c.owners.remove(r)
	c.reservations.remove(r)
	r.Owner, r.PodHandle, r.Since = owner, pod, since
	c.owners.insert(r)
	if lent.token != "" {
		c.reservations.lend(r, lender, lent)
	}
}

// returnLoan gives the addresses of an owner that is gone back to who has reserved them. Nobody can take them over before their
// cleanup is done; the quarantine is for other owners.
func (c *core) returnLoan(r *record) {
	lender, lent, addresses := r.ReservedBy, r.loan, r.addresses
	allocation := Allocation{Owner: lender, Pool: r.Pool, Addresses: r.Addresses, Since: lent.since}
	c.reservations.endLoan(r)
	for _, e := range addresses {
		if e != nil {
			c.cleanups.await(e)
		}
	}
	c.reservations.add(c.owners.add(allocation, addresses), reservationOptions{lent.token, Permanent}, 0, time.Time{})
}

// unreserve releases what is reserved or kept together with an address, and returns the token of what was reserved.
func (c *core) unreserve(addr netip.Addr, token string, now time.Duration) (was Reservation, saved string, err error) {
	r := c.pools.index.owner(addr)
	switch {
	case r == nil:
		return was, "", ErrNoOwner
	case r.loan.token != "" && (token == "" || token == r.loan.token): // the endpoint keeps the addresses
		was = Reservation{Owner: r.ReservedBy, Pool: r.Pool, Addresses: r.Addresses, Since: r.loan.since, Permanent: true}
		saved = r.loan.token
		c.reservations.endLoan(r)
		return was, saved, nil
	case r.token == "" && !r.Kept:
		return was, "", fmt.Errorf("%w by endpoint %s: delete that", ErrInUse, r.Owner)
	case token != "" && token != r.token:
		return was, "", fmt.Errorf("%w: it is %s's by now", ErrNoReservation, r.Owner)
	}
	was = Reservation{Owner: Handle(r.ShownOwner()), Pool: r.Pool, Addresses: r.Addresses, Since: r.Since, Expires: r.Expires, Permanent: r.Reserved && r.Expires.IsZero()}
	saved = r.token
	c.release(r, now)
	return was, saved, nil
}
