package allocator

import (
	"fmt"
	"time"

	"porin.dev/porin/internal/fault"
)

// allocate gives the owner what it has already, or what is free on this node, or says why not. Both times are the
// present.
func (c *core) allocate(req *Request, options reservationOptions, now time.Duration, wall time.Time) (*record, error) {
	if r, err := c.existing(req, options); r != nil || err != nil {
		return r, err
	}
	p, err := c.pools.serving(req.pool())
	if err == nil {
		err = c.suspended
	}
	if err == nil && options.token == "" {
		err = p.checkNamespace(req.Namespace)
	}
	if err != nil {
		return nil, err
	}
	addresses, err := p.choose(&c.pools.index, req.Want, now)
	if err != nil {
		return nil, err
	}
	allocation := Allocation{Owner: req.Owner, PodHandle: req.PodHandle, Pool: p.name, Since: wall}
	for f, e := range addresses {
		if e != nil {
			family(f).set(&allocation.Addresses, e.addr)
		}
	}
	r := c.owners.add(allocation, addresses)
	c.reservations.add(r, options, now, wall)
	c.pools.reportIfLow(p)
	return r, nil
}

// existing answers whoever has something already, and whoever takes over what is reserved; nil for who needs something
// new.
func (c *core) existing(req *Request, options reservationOptions) (*record, error) {
	r := c.owners.records[req.Owner]
	switch {
	case r != nil && (options.token != "" || r.token != "" && r.token != req.Reservation):
		return nil, r.errHasAlready()
	case r != nil && r.token == "":
		r.askedAgain()
		return r, r.satisfies(req)
	case req.Reservation != "":
		return c.takeOver(req)
	}
	return nil, nil
}

// takeOver makes a temporary reservation the owner's. A permanent reservation stays, and the owner uses it:
// the endpoint manager lets one endpoint at a time have an address.
func (c *core) takeOver(req *Request) (*record, error) {
	r := c.reservations.find(req.Reservation)
	if r == nil {
		return nil, ErrNoReservation
	}
	if req.Pool != "" && req.Pool != r.Pool {
		return nil, fault.WithHint(fault.New(fault.Conflict, fmt.Sprintf("the reservation is of pool %s, and not of pool %s", r.Pool, req.Pool)),
			"name no pool besides the reservation")
	}
	if err := r.satisfies(req); err != nil {
		return nil, err
	}
	if err := c.checkGiven(r, req.Namespace); err != nil {
		return nil, err
	}
	if r.until != forever {
		c.handOver(r, req.Owner, req.PodHandle, time.Now())
	}
	return r, nil
}

// errNotGiven is returned for what is reserved when its block is not given out from.
var errNotGiven = fault.WithHint(fault.New(fault.Unavailable, "nothing is given out of its block now"), "see porin ipam list and porin ipam check")

// checkGiven returns an error unless what is reserved may be given to a pod of the namespace: the reservation holds the
// address, but the block may be another node's by now.
func (c *core) checkGiven(r *record, namespace string) error {
	p := c.pools.byName[r.Pool]
	switch {
	case c.suspended != nil:
		return c.suspended
	case p == nil || !p.known:
		return fmt.Errorf("pool %q of the reservation is not known: %w", r.Pool, errNotGiven)
	}
	for _, e := range r.addresses {
		switch {
		case e == nil:
		case e.ofNode:
			return fmt.Errorf("address %s: %w by the node itself", e.addr, ErrInUse)
		case e.block.drained:
			return fmt.Errorf("address %s is reserved: %w", e.addr, errNotGiven)
		}
	}
	return p.checkNamespace(namespace)
}
