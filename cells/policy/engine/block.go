package engine

import (
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// prefix is the range of a block, or of an exception of one. Addresses in it that no endpoint has, and that are in no longer prefix, are in the same blocks.
type prefix struct {
	member
	blocks *selectorSet // that the addresses are in
	refs   int
	begins []*selector // blocks with just these addresses, and domains that have the address
	ends   []*selector // blocks that have just these as an exception
	// unmanaged says that the addresses are of kind [model.Unmanaged].
	unmanaged bool
}

func (e *Engine) addBlock(tx *transaction, sel *selector) {
	for i, cidr := range append([]netip.Prefix{sel.peer.Block.CIDR}, sel.peer.Block.Except...) {
		p := e.acquirePrefix(cidr)
		if i == 0 {
			p.begins = append(p.begins, sel)
		} else {
			p.ends = append(p.ends, sel)
		}
	}
	tx.blocks = append(tx.blocks, sel.peer.Block.CIDR)
}

func (e *Engine) acquirePrefix(cidr netip.Prefix) *prefix {
	p, ok := e.prefixes.Get(cidr)
	if !ok {
		p = &prefix{blocks: e.intern(nil)}
		e.prefixes.Insert(cidr, p)
	}
	p.refs++
	return p
}

func (tx *transaction) releasePrefix(cidr netip.Prefix, p *prefix) {
	if p.refs--; p.refs == 0 {
		tx.e.prefixes.Delete(cidr)
		tx.e.release(p.blocks)
		tx.quit(place{cidr, true}, p.member)
	}
}

// setUnmanaged says whether addresses without an endpoint in the range are of kind unmanaged.
func (tx *transaction) setUnmanaged(cidr netip.Prefix, unmanaged bool) {
	p, ok := tx.e.prefixes.Get(cidr)
	if unmanaged == (ok && p.unmanaged) {
		return
	}
	if unmanaged {
		p = tx.e.acquirePrefix(cidr)
	}
	p.unmanaged = unmanaged
	if !unmanaged {
		tx.releasePrefix(cidr, p)
	}
	tx.blocks = append(tx.blocks, cidr)
}

// kindAt is the kind of the addresses in a range that no endpoint has.
func (e *Engine) kindAt(cidr netip.Prefix) model.EndpointKind {
	for _, p := range e.prefixes.Supernets(cidr) {
		if p.unmanaged {
			return model.Unmanaged
		}
	}
	return model.World
}

func (e *Engine) removeBlock(tx *transaction, sel *selector) {
	isOf := func(s *selector) bool { return s == sel }
	for _, cidr := range append([]netip.Prefix{sel.peer.Block.CIDR}, sel.peer.Block.Except...) {
		p, _ := e.prefixes.Get(cidr)
		p.begins, p.ends = slices.DeleteFunc(p.begins, isOf), slices.DeleteFunc(p.ends, isOf)
		tx.releasePrefix(cidr, p)
	}
	tx.blocks = append(tx.blocks, sel.peer.Block.CIDR)
}

// updateBlocks recomputes the addresses in the ranges of new and dead blocks.
func (tx *transaction) updateBlocks() {
	e := tx.e
	seen := map[*prefix]bool{}
	done := map[netip.Prefix]bool{}
	for _, cidr := range tx.blocks {
		if done[cidr] {
			continue
		}
		done[cidr] = true
		for within, p := range e.prefixes.Subnets(cidr) {
			if seen[p] {
				continue
			}
			seen[p] = true
			tx.dirty(place{within, true})
			if e.size.exceeded {
				continue
			}
			old := p.blocks
			p.blocks = e.intern(e.blocksOf(within))
			e.release(old)
		}
		for addr := range e.addresses.Subnets(cidr) {
			tx.dirty(place{cidr: addr})
		}
	}
}

func (e *Engine) blocksOf(cidr netip.Prefix) []*selector {
	var found []*selector
	excepted := map[*selector]bool{}
	for _, p := range e.prefixes.Supernets(cidr) {
		found = append(found, p.begins...)
		for _, sel := range p.ends {
			excepted[sel] = true
		}
	}
	if len(excepted) > 0 {
		found = slices.DeleteFunc(found, func(sel *selector) bool { return excepted[sel] })
	}
	slices.SortFunc(found, byID)
	return found
}

// blocksAt returns the blocks of an address.
func (e *Engine) blocksAt(addr netip.Addr) *selectorSet {
	if p, ok := e.prefixes.Lookup(addr); ok {
		return p.blocks
	}
	return e.noSelectors
}
