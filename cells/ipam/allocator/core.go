package allocator

import (
	"fmt"
	"net/netip"
	"time"
)

// core is the allocator without its lock and its clock: the owners of addresses, and the free addresses. It
// changes its parts together, so that they agree.
type core struct {
	pools        poolSet
	owners       owners
	reservations reservations
	cleanups     cleanups
	suspended    error // refusal nothing is given out; nil: it is
}

func newCore() core {
	return core{pools: newPoolSet(), owners: newOwners()}
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
		case e == nil:
		case r.External:
			e.block.list.expire(at)
			e.yield(at)
		default:
			c.cleanups.rest(e, at)
		}
	}
	if pod := c.owners.releasedWith(r); pod != nil {
		c.release(pod, at)
	}
	c.owners.keepSpare(r)
}

// handOver makes what is reserved for a time an endpoint's.
func (c *core) handOver(r *record, owner, pod Handle, since time.Time) {
	c.owners.remove(r)
	c.reservations.remove(r)
	r.Owner, r.PodHandle, r.Since = owner, pod, since
	c.owners.insert(r)
}

// releaseReservation releases what is reserved or kept together with an address, and returns the token of what was
// reserved. A permanent reservation stays when used returns an error.
func (c *core) releaseReservation(addr netip.Addr, token string, used func(Reservation) error, now time.Duration) (was Reservation, saved string, err error) {
	r := c.pools.index.owner(addr)
	switch {
	case r == nil:
		return was, "", ErrNoOwner
	case r.token == "" && !r.Kept:
		return was, "", fmt.Errorf("%w by endpoint %s: delete that", ErrInUse, r.Owner)
	case token != "" && token != r.token:
		return was, "", fmt.Errorf("%w: it is %s's by now", ErrNoReservation, r.Owner)
	}
	was = Reservation{Owner: Handle(r.ShownOwner()), Pool: r.Pool, Addresses: r.Addresses, Since: r.Since, Expires: r.Expires, Permanent: r.IsPermanent()}
	saved = r.token
	if used != nil && was.Permanent {
		was.Token = saved
		if err := used(was); err != nil {
			return was, "", err
		}
		was.Token = ""
	}
	c.release(r, now)
	return was, saved, nil
}
