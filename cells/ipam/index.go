package ipam

import (
	"net/netip"
	"slices"
)

// index finds the block of an address by the few lengths that prefixes have.
type index struct {
	blocks  map[netip.Prefix]*block
	lengths [families][]int
}

func newIndex() index { return index{blocks: map[netip.Prefix]*block{}} }

func (x *index) add(b *block) {
	x.blocks[b.prefix] = b
	lengths := &x.lengths[familyOf(b.prefix.Addr())]
	if !slices.Contains(*lengths, b.prefix.Bits()) {
		*lengths = append(*lengths, b.prefix.Bits())
	}
}

func (x *index) remove(b *block) {
	delete(x.blocks, b.prefix)
	f := familyOf(b.prefix.Addr())
	for other := range x.blocks {
		if familyOf(other.Addr()) == f && other.Bits() == b.prefix.Bits() {
			return
		}
	}
	x.lengths[f] = slices.DeleteFunc(x.lengths[f], func(n int) bool { return n == b.prefix.Bits() })
}

// block returns the block that an address lies in, or nil.
func (x *index) block(addr netip.Addr) *block {
	for _, bits := range x.lengths[familyOf(addr)] {
		prefix, err := addr.Prefix(bits)
		if err != nil {
			return nil
		}
		if b := x.blocks[prefix]; b != nil {
			return b
		}
	}
	return nil
}

// slot returns what is known of an address; nil when it is in no block, or none that is given out.
func (x *index) slot(addr netip.Addr) *slot {
	b := x.block(addr)
	if b == nil {
		return nil
	}
	s, err := b.find(addr)
	if err != nil {
		return nil
	}
	return s
}

// overlapping returns the blocks that have addresses in common with a prefix.
func (x *index) overlapping(prefix netip.Prefix) (found []*block) {
	for other, b := range x.blocks {
		if other.Overlaps(prefix) {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(x, y *block) int { return x.prefix.Addr().Compare(y.prefix.Addr()) })
	return found
}
