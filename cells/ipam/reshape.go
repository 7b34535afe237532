package ipam

import (
	"net/netip"
	"slices"
)

// put adds a block in place of its parts.
func (a *allocator) put(b *block, s *shelf, parts []*block) {
	for _, part := range parts {
		a.index.remove(part)
	}
	a.index.add(b)
	s.reshape(b, parts)
	s.open(b)
	a.populate(b)
}

// own returns the blocks of a pool that have addresses in common with a prefix.
func (a *allocator) own(name string, prefix netip.Prefix) []*block {
	return slices.DeleteFunc(a.index.overlapping(prefix), func(b *block) bool { return b.shelf.pool.name != name })
}

// busy counts the addresses of the prefix that are in use or rest.
func (b *block) busy(prefix netip.Prefix) (n int) {
	if b.prefix.Bits() >= prefix.Bits() {
		return b.used + b.resting
	}
	b.known(func(s *slot) {
		if s.state != free && s.state != parked && prefix.Contains(s.addr()) {
			n++
		}
	})
	return n
}

// cut removes a block, or its half.
func (a *allocator) cut(b *block, prefix netip.Prefix) {
	a.index.remove(b)
	if b.prefix.Bits() >= prefix.Bits() {
		b.shelf.remove(b)
		a.sweep(b.shelf.pool)
		return
	}
	kept := newBlock(b.otherHalf(prefix))
	a.index.add(kept)
	b.shelf.reshape(kept, []*block{b})
}

func (b *block) otherHalf(half netip.Prefix) netip.Prefix {
	if half.Addr() != b.prefix.Addr() {
		return netip.PrefixFrom(b.prefix.Addr(), half.Bits())
	}
	middle := slot{block: b, offset: 1 << (half.Addr().BitLen() - half.Bits())}
	return netip.PrefixFrom(middle.addr(), half.Bits())
}
