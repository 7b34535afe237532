package ipam

import (
	"net/netip"
	"slices"

	"porin.dev/porin/cells/endpointmanager"
)

// auditBatch is how many records are looked at before somebody else has a turn: an ADD does not wait for the whole of it.
const auditBatch = 256

// Audit implements [Books]. Each record is looked at as it is at that moment.
func (a *allocator) Audit() Audit {
	owners, addrs, blocks := a.inventory()
	audit := Audit{Owners: len(owners), Addresses: len(addrs), Ranges: len(blocks), Outside: map[netip.Addr]bool{}}
	inTurns(a, owners, func(h Handle) { audit.add(a.auditOwner(h)) })
	inTurns(a, addrs, func(addr netip.Addr) {
		audit.add(a.auditAddress(addr))
		if r := a.addresses[addr]; r != nil && !r.External && a.index.block(addr) == nil {
			audit.Outside[addr] = true
		}
	})
	for _, b := range blocks {
		inTurns(a, usedIn(a, b), func(addr netip.Addr) { audit.add(a.auditMark(addr)) })
	}
	return audit
}

func (audit *Audit) add(f Flaw, found bool) {
	if found && !slices.Contains(audit.Flaws, f) {
		audit.Flaws = append(audit.Flaws, f)
	}
}

func (a *allocator) inventory() (owners []Handle, addrs []netip.Addr, blocks []*block) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	owners, addrs = make([]Handle, 0, len(a.owners)), make([]netip.Addr, 0, len(a.addresses))
	for h := range a.owners {
		owners = append(owners, h)
	}
	for addr := range a.addresses {
		addrs = append(addrs, addr)
	}
	for _, b := range a.index.blocks {
		blocks = append(blocks, b)
	}
	return owners, addrs, blocks
}

// inTurns calls visit for all with the lock, which others have in between.
func inTurns[T any](a *allocator, all []T, visit func(T)) {
	for batch := range slices.Chunk(all, auditBatch) {
		a.mu.Lock()
		for _, one := range batch {
			visit(one)
		}
		a.mu.Unlock()
	}
}

// usedIn are the addresses that a block has as in use.
func usedIn(a *allocator, b *block) (addrs []netip.Addr) {
	a.mu.Lock()
	chunks := slices.Clone(b.chunks)
	a.mu.Unlock()
	inTurns(a, chunks, func(chunk *[chunkSize]slot) {
		if chunk == nil {
			return
		}
		for i := range chunk {
			if chunk[i].state == used {
				addrs = append(addrs, chunk[i].addr())
			}
		}
	})
	return addrs
}

// auditOwner expects the lock, as those below do.
func (a *allocator) auditOwner(h Handle) (f Flaw, found bool) {
	r := a.owners[h]
	if r == nil {
		return f, false
	}
	has := func(addr netip.Addr) bool { return a.addresses[addr] == r }
	return Flaw{Kind: Bare, Owner: h, Seq: r.Seq}, !slices.ContainsFunc(r.Addresses.List(), has)
}

func (a *allocator) auditAddress(addr netip.Addr) (f Flaw, found bool) {
	r, s := a.addresses[addr], a.index.slot(addr)
	switch {
	case r == nil:
		return f, false
	case a.owners[r.Owner] != r:
		return Flaw{Kind: Ownerless, Address: addr}, true
	}
	return Flaw{Kind: Unmarked, Owner: r.Owner, Seq: r.Seq, Address: addr}, s != nil && s.state != used
}

func (a *allocator) auditMark(addr netip.Addr) (f Flaw, found bool) {
	s := a.index.slot(addr)
	return Flaw{Kind: Ownerless, Address: addr}, s != nil && s.state == used && a.addresses[addr] == nil
}

// Standing implements [Books].
func (a *allocator) Standing(addr netip.Addr) (ours bool, owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.addresses[addr]; r != nil {
		owner = r.Owner
	}
	s := a.index.slot(addr)
	return s != nil && !s.block.drained, owner
}

// has tells whether a flaw is still there.
func (a *allocator) has(f Flaw) bool {
	is := func(now Flaw, found bool) bool { return found && now == f }
	if f.Kind == Bare {
		return is(a.auditOwner(f.Owner))
	}
	return is(a.auditAddress(f.Address)) || is(a.auditMark(f.Address))
}

// Mend implements [Books].
func (a *allocator) Mend(f Flaw) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	if !a.has(f) {
		return
	}
	switch f.Kind {
	case Bare:
		r := a.owners[f.Owner]
		r.Addresses = endpointmanager.Addresses{} // which are not its
		a.release(r, now)
	case Ownerless:
		delete(a.addresses, f.Address)
		a.vacate(f.Address, false, now)
	case Unmarked:
		s := a.index.slot(f.Address)
		s.block.shelf.use(s)
	}
}
