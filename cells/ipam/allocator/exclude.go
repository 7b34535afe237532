package allocator

import (
	"net/netip"
	"slices"
)

// setExclude excludes these addresses from a block that is in a list, and no others. Addresses in use stay.
func (b *block) setExclude(all []netip.Prefix) {
	exclude := excludedIn(b.prefix, all)
	if len(exclude)+len(b.exclude) == 0 {
		return
	}
	if !b.drained {
		b.list.available -= b.left()
	}
	b.exclude, b.excludedSize, b.excludedTaken = exclude, excludedSize(b, exclude), 0
	if !b.forgets {
		b.cursor = b.first
	}
	var back []*address
	for _, e := range b.known {
		switch e.excluded = b.excludes(e.addr); {
		case e.excluded && e.state.takesUp():
			b.excludedTaken++
		case e.excluded && e.state == free:
			e.removeFromList()
			e.enter(drained)
		case !e.excluded && e.state == drained && !b.drained:
			back = append(back, e)
		}
	}
	b.list.freeRested(back)
	if !b.drained {
		b.list.available += b.left()
		if !slices.Contains(b.list.unused, b) {
			b.list.unused = append(b.list.unused, b)
		}
	}
}

// excludedIn returns the excluded parts of a block, which do not overlap.
func excludedIn(block netip.Prefix, all []netip.Prefix) (parts []netip.Prefix) {
	for _, e := range all {
		switch {
		case !e.Overlaps(block):
		case e.Bits() <= block.Bits():
			return []netip.Prefix{block}
		case !slices.ContainsFunc(parts, func(other netip.Prefix) bool { return other.Bits() <= e.Bits() && other.Overlaps(e) }):
			parts = slices.DeleteFunc(parts, e.Overlaps)
			parts = append(parts, e)
		}
	}
	return parts
}

// excludedSize is how many addresses of the block's size are excluded.
func excludedSize(b *block, exclude []netip.Prefix) int64 {
	if len(exclude) == 0 {
		return 0
	}
	left := uint64(1) << hostBits(b.prefix) // of 64 bits it is 0, and so is the sum of all
	for _, e := range exclude {
		left -= 1 << hostBits(e)
	}
	return b.size - int64(min(left, uint64(b.size)))
}

func hostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// excludes reports whether the address is not given out although the block has it.
func (b *block) excludes(addr netip.Addr) bool { return b.excludedPart(addr).IsValid() }

// excludedPart returns the excluded part of the block that the address is in; the zero value when it is in none.
func (b *block) excludedPart(addr netip.Addr) netip.Prefix {
	for _, e := range b.exclude {
		if e.Contains(addr) {
			return e
		}
	}
	return netip.Prefix{}
}
