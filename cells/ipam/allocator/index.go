package allocator

import (
	"net/netip"
	"slices"
	"time"
)

// MaxQuarantine is how long the release of an address is remembered that lies in no block of this node, as its block
// may come: a quarantine is no longer.
const MaxQuarantine = 20 * time.Minute

// index finds an address, by the few lengths that the prefixes of blocks have. It is not safe for concurrent use.
type index struct {
	blocks  map[netip.Prefix]*block
	lengths [families][]int
	outside *block // of addresses in no block, or in a block that does not give them out
}

func newIndex() index {
	outside := &block{known: map[netip.Addr]*address{}, forgets: true, drained: true}
	outside.list = &freeList{pool: &pool{settings: Settings{Quarantine: MaxQuarantine}}}
	return index{blocks: map[netip.Prefix]*block{}, outside: outside}
}

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

// blockOf returns the block that knows of an address: the block that gives it out, or outside.
func (x *index) blockOf(addr netip.Addr) *block {
	if b := x.block(addr); b != nil && b.canAllocate(addr) {
		return b
	}
	return x.outside
}

// covers reports whether an address lies in a block and may be given out from it.
func (x *index) covers(addr netip.Addr) bool { return x.blockOf(addr) != x.outside }

// known returns what is known of an address, or nil.
func (x *index) known(addr netip.Addr) *address { return x.blockOf(addr).known[addr] }

// owner returns who has an address, or nil.
func (x *index) owner(addr netip.Addr) *record {
	if e := x.known(addr); e != nil {
		return e.owner
	}
	return nil
}

// moveIn has a block that has come know what was known of its addresses before.
func (x *index) moveIn(b *block) {
	for addr, e := range x.outside.known {
		if !b.canAllocate(addr) {
			continue
		}
		s, owner := e.state, e.owner
		e.removeFromList()
		delete(x.outside.known, addr)
		b.known[addr] = e
		e.block, e.excluded = b, b.excludes(addr)
		e.enter(s)
		e.owner = owner
	}
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
