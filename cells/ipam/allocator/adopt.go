package allocator

import (
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// adopt is [Allocator.Adopt]. It returns the tokens of the reservations that gave way.
func (c *core) adopt(allocation Allocation, now time.Duration) (ended []string, err error) {
	if len(allocation.Addresses.List()) == 0 {
		return nil, nil
	}
	r := c.owners.records[allocation.Owner]
	switch {
	case c.isReserved(allocation):
		return nil, nil
	case r == nil:
		ended = c.endRestored(allocation.Addresses, now)
		_, err := c.adoptNew(allocation, now)
		return ended, err
	case r.token == "" && r.Addresses == allocation.Addresses:
		r.askedAgain()
		return nil, nil
	}
	return nil, fmt.Errorf("adopt for %s: %w", allocation.Owner, r.errHasAlready())
}

// isReserved reports whether just these addresses are reserved permanently, and no other IPAM gave them.
func (c *core) isReserved(allocation Allocation) bool {
	r := c.pools.index.owner(allocation.Addresses.List()[0])
	return r != nil && r.until == forever && r.Addresses == allocation.Addresses && !allocation.External
}

// endRestored ends the reservations of an earlier life of the agent that have one of the addresses, and returns their
// tokens.
func (c *core) endRestored(addresses endpoint.Addresses, now time.Duration) (ended []string) {
	for _, addr := range addresses.List() {
		if r := c.pools.index.owner(addr); r != nil && r.restored {
			ended = append(ended, r.token)
			c.release(r, now)
		}
	}
	return ended
}

// adoptNew is for an owner that has nothing.
func (c *core) adoptNew(allocation Allocation, now time.Duration) (*record, error) {
	if err := c.adoptConflict(allocation, now); err != nil {
		return nil, err
	}
	var addresses [families]*address
	for f := range families {
		if addr := f.of(allocation.Addresses); addr.IsValid() {
			addresses[f] = c.pools.index.blockOf(addr).address(addr)
		}
	}
	return c.owners.add(allocation, addresses), nil
}

// adoptConflict returns an error when one of the addresses is another owner's. The others rest then: they were in use
// until now.
func (c *core) adoptConflict(allocation Allocation, now time.Duration) (conflict error) {
	addresses := allocation.Addresses.List()
	for _, addr := range addresses {
		if r := c.pools.index.owner(addr); r != nil && conflict == nil {
			conflict = fmt.Errorf("adopt %s for %s: %w by %s", addr, allocation.Owner, ErrInUse, r.Owner)
		}
	}
	if conflict == nil || allocation.External {
		return conflict
	}
	for _, addr := range addresses {
		if e := c.pools.index.blockOf(addr).address(addr); e.state != inUse {
			c.cleanups.rest(e, now)
		}
	}
	return conflict
}

// restore is [Allocator.RestoreReservation] of an unexpired reservation.
func (c *core) restore(saved Reservation, options reservationOptions, now time.Duration) error {
	if r := c.owners.records[saved.Owner]; r != nil {
		return fmt.Errorf("restore the reservation of %s: %w", saved.Owner, r.errHasAlready())
	}
	r, err := c.adoptNew(Allocation{Owner: saved.Owner, Pool: saved.Pool, Addresses: saved.Addresses, Since: saved.Since}, now)
	if err != nil {
		return err
	}
	c.reservations.add(r, options, now, time.Now())
	r.restored = true
	return nil
}

// quarantine records that an address was released.
func (c *core) quarantine(addr netip.Addr, since time.Duration) {
	e := c.pools.index.blockOf(addr).address(addr)
	if e.state != inUse {
		c.cleanups.rest(e, since)
	}
}
