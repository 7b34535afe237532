package ipam

import (
	"fmt"
	"net/netip"
	"time"
)

// Adopt implements [Allocator].
func (a *allocator) Adopt(allocation Allocation) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	if r := a.owners[allocation.Owner]; r != nil {
		if r.token == "" && r.Addresses == allocation.Addresses {
			r.again()
			return nil
		}
		return fmt.Errorf("adopt for %s: %w", allocation.Owner, r.has())
	}
	var conflict error
	for _, addr := range allocation.Addresses.List() {
		if err := a.conflict(addr); err != nil && conflict == nil {
			conflict = fmt.Errorf("adopt %s for %s: %w", addr, allocation.Owner, err)
		}
	}
	for _, addr := range allocation.Addresses.List() {
		if s := a.index.slot(addr); s != nil && s.state != used {
			s.block.shelf.use(s)
			if conflict != nil {
				a.vacate(addr, allocation.External, now) // it has been in use until now
			}
		}
	}
	if conflict == nil {
		a.enter(allocation)
	}
	return conflict
}

// conflict is [ErrInUse] when somebody has the address.
func (a *allocator) conflict(addr netip.Addr) error {
	if r := a.addresses[addr]; r != nil {
		return fmt.Errorf("%w by %s", ErrInUse, r.Owner)
	}
	return nil
}

// has is the error of who has something else already.
func (r *record) has() error {
	if r.token != "" {
		return fmt.Errorf("%w: it has reserved %v until %s", ErrInUse, r.Addresses.List(), r.Expires.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("%w: it has %v already", ErrInUse, r.Addresses.List())
}
