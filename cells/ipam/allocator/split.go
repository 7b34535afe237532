package allocator

import "net/netip"

// replaceBlocks prepares a block for the place of those that are parts of it, or of the one that it is a part of. What is known of
// their addresses is known of its own, in the same places of the same lists; what lies outside is forgotten.
func (a *Allocator) replaceBlocks(b *block, parts []*block) {
	for _, part := range parts {
		a.index.remove(part)
		for addr, e := range part.known {
			if !b.gives(addr) {
				continue
			}
			if e.state.takesUp() {
				part.countTaken(e.state, -1)
				b.countTaken(e.state, 1)
			}
			delete(part.known, addr)
			b.known[addr], e.block = e, b
		}
		b.drained = b.drained || part.drained
		part.list.remove(part)
	}
}

// busy counts the addresses of the prefix that are in use or rest.
func (b *block) busy(prefix netip.Prefix) (n int64) {
	if b.prefix.Bits() >= prefix.Bits() {
		return b.used + b.resting
	}
	for addr, e := range b.known {
		if (e.state == inUse || e.state == uncleaned || e.state == resting) && prefix.Contains(addr) {
			n++
		}
	}
	return n
}

// removeBlock removes a block, or its half.
func (a *Allocator) removeBlock(b *block, prefix netip.Prefix) {
	if b.prefix.Bits() >= prefix.Bits() {
		a.index.remove(b)
		b.list.remove(b)
		a.forgetIfEmpty(b.list.pool)
		return
	}
	kept, l := newBlock(b.otherHalf(prefix)), b.list
	a.replaceBlocks(kept, []*block{b})
	a.addBlock(kept, l)
}

func (b *block) otherHalf(half netip.Prefix) netip.Prefix {
	if half.Addr() != b.prefix.Addr() {
		return netip.PrefixFrom(b.prefix.Addr(), half.Bits())
	}
	return netip.PrefixFrom(offset(b.prefix.Addr(), 1<<(half.Addr().BitLen()-half.Bits())), half.Bits())
}
