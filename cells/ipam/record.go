package ipam

import (
	"net/netip"
	"time"
)

// record is what one owner has.
type record struct {
	Allocation
	token string        // of a reservation; "" for what is none
	until time.Duration // when a reservation ends
}

// enter records what an owner has got. It expects the lock, and that nobody has the addresses.
func (a *allocator) enter(allocation Allocation) *record {
	r := a.newRecord()
	r.Allocation = allocation
	r.Seq = a.nextSeq()
	a.owners[r.Owner] = r
	a.nameLegacy(r.Legacy, 1)
	for f := range families {
		if addr := f.of(r.Addresses); addr.IsValid() {
			a.addresses[addr] = r
		}
	}
	return r
}

// newRecord takes one that is not needed any more, so that no garbage is made.
func (a *allocator) newRecord() *record {
	if n := len(a.spare); n > 0 {
		r := a.spare[n-1]
		a.spare = a.spare[:n-1]
		return r
	}
	return new(record)
}

func (a *allocator) nextSeq() uint64 {
	a.seq++
	return a.seq
}

// again notes that an owner has asked for what it has. It expects the lock.
func (r *record) again() Allocation {
	r.Asked++
	r.Kept = false
	return r.Allocation
}

// release frees what a record has, at a time. It expects the lock, and that nothing was released later.
func (a *allocator) release(r *record, at time.Duration) {
	delete(a.owners, r.Owner)
	a.nameLegacy(r.Legacy, -1)
	a.endReservation(r)
	for f := range families {
		if addr := f.of(r.Addresses); addr.IsValid() {
			delete(a.addresses, addr)
			a.vacate(addr, r.External, at)
		}
	}
	a.releaseLegacy(r, at)
	*r = record{}
	a.spare = append(a.spare, r)
}

// vacate has an address rest that nobody has any more. One that lies in no block may do so when its block comes.
func (a *allocator) vacate(addr netip.Addr, external bool, at time.Duration) {
	s := a.index.slot(addr)
	switch {
	case s == nil && !external:
		a.remember(addr, at)
	case s == nil || s.state != used:
	case external:
		s.block.shelf.settle(at)
		s.block.shelf.yield(s, at)
	default:
		s.block.shelf.rest(s, at)
	}
}
