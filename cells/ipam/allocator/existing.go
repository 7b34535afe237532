package allocator

import (
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// existing answers whoever has something already, and whoever takes over what is reserved.
func (a *Allocator) existing(req Request, options reservationOptions) (got Allocation, done bool, err error) {
	if err := a.reservations.checkLent(req.Owner); err != nil {
		return got, true, err
	}
	r := a.owners.records[req.Owner]
	switch {
	case r != nil && (options.token != "" || r.token != "" && r.token != req.Reservation):
		return got, true, r.errHasAlready()
	case r != nil && r.token == "":
		return r.askedAgain(), true, r.satisfies(req)
	case req.Reservation != "":
		got, err = a.takeOver(req)
		return got, true, err
	}
	return got, false, nil
}

// askedAgain notes that an owner has asked for what it has.
func (r *record) askedAgain() Allocation {
	r.Asked++
	r.Kept = false
	return r.Allocation
}

// satisfies returns an error unless what an owner has is what it asks for when it asks again.
func (r *record) satisfies(req Request) error {
	for f := range families {
		if want := f.of(req.Want); want.IsValid() && want != f.of(r.Addresses) {
			return r.errHasAlready()
		}
	}
	return nil
}

// errHasAlready is the error of who has something else.
func (r *record) errHasAlready() error {
	switch {
	case r.token == "":
		return fmt.Errorf("%w: it has %v already", ErrInUse, r.Addresses.List())
	case r.Expires.IsZero():
		return fmt.Errorf("%w: it has reserved %v permanently", ErrInUse, r.Addresses.List())
	}
	return fmt.Errorf("%w: it has reserved %v until %s", ErrInUse, r.Addresses.List(), r.Expires.UTC().Format(time.RFC3339))
}

// takeOver makes what is reserved the owner's.
func (a *Allocator) takeOver(req Request) (Allocation, error) {
	if r := a.reservations.borrower(req.Reservation); r != nil {
		return Allocation{}, fault.WithHint(fmt.Errorf("%w: %s uses what is reserved", ErrInUse, r.Owner), "wait until that is deleted, or reserve another address")
	}
	r := a.reservations.find(req.Reservation)
	if r == nil {
		return Allocation{}, ErrNoReservation
	}
	if req.Pool != "" && req.Pool != r.Pool {
		return Allocation{}, fault.WithHint(fault.New(fault.Conflict, fmt.Sprintf("the reservation is of pool %s, and not of pool %s", r.Pool, req.Pool)),
			"name no pool besides the reservation")
	}
	if err := r.satisfies(req); err != nil {
		return Allocation{}, err
	}
	if err := a.checkGiven(r, req.Namespace); err != nil {
		return Allocation{}, err
	}
	if err := a.cleanups.check(r); err != nil {
		return Allocation{}, err
	}
	a.handOver(r, req.Owner, req.PodHandle, time.Now())
	return r.Allocation, nil
}

// errNotGiven is returned for what is reserved when its block is not given out from.
var errNotGiven = fault.WithHint(fault.New(fault.Unavailable, "nothing is given out of its block now"), "see porin ipam list and porin ipam check")

// ofReservation is the request that names what is reserved, if it is for a reservation that there is.
func (a *Allocator) ofReservation(req Request) Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.reservations.find(req.Reservation); r != nil {
		req.Pool, req.Want = r.Pool, r.Addresses
	}
	return req
}

// checkGiven returns an error unless what is reserved may be given to a pod of the namespace: the reservation holds the address, but the
// block may be another node's by now.
func (a *Allocator) checkGiven(r *record, namespace string) error {
	p := a.pools.byName[r.Pool]
	switch {
	case a.suspended != nil:
		return a.suspended
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

// Adopt records what an owner has had since before the agent started, or has from another IPAM, inside a block or not. An
// address that another one has is [ErrInUse]; only a reservation of an earlier life of the agent gives way: a permanent one of the
// same addresses is lent, others end. Its Seq is a new one. Nothing is recorded of who has no address.
func (a *Allocator) Adopt(allocation Allocation) error {
	ended, err := a.adoptOrAgain(allocation)
	for _, token := range ended {
		_ = a.store.Delete(token) // one that stays gives way again after the next restart
	}
	return err
}

func (a *Allocator) adoptOrAgain(allocation Allocation) (ended []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.expire()
	if len(allocation.Addresses.List()) == 0 {
		return nil, nil
	}
	if err := a.reservations.checkLent(allocation.Owner); err != nil {
		return nil, fmt.Errorf("adopt for %s: %w", allocation.Owner, err)
	}
	r := a.owners.records[allocation.Owner]
	switch {
	case r == nil && a.lends(allocation):
		a.handOver(a.pools.index.owner(allocation.Addresses.List()[0]), allocation.Owner, allocation.PodHandle, allocation.Since)
		return nil, nil
	case r == nil:
		ended = a.endRestored(allocation.Addresses, now)
		_, err := a.adopt(allocation, now)
		return ended, err
	case r.token == "" && r.Addresses == allocation.Addresses:
		r.askedAgain()
		return nil, nil
	}
	return nil, fmt.Errorf("adopt for %s: %w", allocation.Owner, r.errHasAlready())
}

// lends reports whether just these addresses are reserved permanently since an earlier life of the agent.
func (a *Allocator) lends(allocation Allocation) bool {
	r := a.pools.index.owner(allocation.Addresses.List()[0])
	return r != nil && r.restored && r.until == forever && r.Addresses == allocation.Addresses && !allocation.External
}

// endRestored ends the reservations of an earlier life of the agent that have one of the addresses, and returns their tokens.
func (a *Allocator) endRestored(addresses endpoint.Addresses, now time.Duration) (ended []string) {
	for _, addr := range addresses.List() {
		if r := a.pools.index.owner(addr); r != nil && r.restored {
			ended = append(ended, r.token)
			a.releaseRecord(r, now)
		}
	}
	return ended
}

// adopt is for an owner that has nothing.
func (a *Allocator) adopt(allocation Allocation, now time.Duration) (*record, error) {
	if err := a.adoptConflict(allocation, now); err != nil {
		return nil, err
	}
	var addresses [families]*address
	for f := range families {
		if addr := f.of(allocation.Addresses); addr.IsValid() {
			addresses[f] = a.pools.index.home(addr).address(addr)
		}
	}
	return a.owners.add(allocation, addresses), nil
}

// adoptConflict returns an error when one of the addresses is another owner's. The others rest then: they were in use until now.
func (a *Allocator) adoptConflict(allocation Allocation, now time.Duration) (conflict error) {
	addresses := allocation.Addresses.List()
	for _, addr := range addresses {
		if r := a.pools.index.owner(addr); r != nil && conflict == nil {
			conflict = fmt.Errorf("adopt %s for %s: %w by %s", addr, allocation.Owner, ErrInUse, r.Owner)
		}
	}
	if conflict == nil || allocation.External {
		return conflict
	}
	for _, addr := range addresses {
		if e := a.pools.index.home(addr).address(addr); e.state != inUse {
			a.cleanups.rest(e, now)
		}
	}
	return conflict
}

// Quarantine records that an address was released at the given time, in an earlier life of the agent.
func (a *Allocator) Quarantine(addr netip.Addr, released time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// From now on the clock that nobody sets counts, and what is in the future is now.
	since := a.expire() - max(0, time.Since(released))
	e := a.pools.index.home(addr).address(addr)
	switch {
	case e.state != inUse:
		a.cleanups.rest(e, since)
	case e.owner.restored:
		a.cleanups.await(e)
	}
}
