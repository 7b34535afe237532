package ipam

import "net/netip"

// LoseOwner, LoseAddress and Unmark have the allocator's records differ, as a fault of it would.
func LoseOwner(a Allocator, owner Handle) {
	tamper(a, func(a *allocator) { delete(a.owners, owner) })
}

// LoseAddress has an address be in use, and nobody's on record.
func LoseAddress(a Allocator, addr netip.Addr) {
	tamper(a, func(a *allocator) { delete(a.addresses, addr) })
}

// Unmark has an address that has an owner be free.
func Unmark(a Allocator, addr netip.Addr) {
	tamper(a, func(a *allocator) {
		s := a.index.slot(addr)
		s.block.used--
		s.state = free
		s.block.shelf.free.put(s, nil)
	})
}

func tamper(a Allocator, do func(*allocator)) {
	inner := a.(*allocator)
	inner.mu.Lock()
	defer inner.mu.Unlock()
	do(inner)
}
