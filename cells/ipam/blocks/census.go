package blocks

import (
	"cmp"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/store"
)

// slotID names a block.
type slotID struct {
	pool  string
	block netip.Prefix
}

// versioned is a slot as it was at a revision. A block of which nobody owns anything is the zero one.
type versioned struct {
	slot
	revision int64
	opaque   bool // it is of a later version: nobody knows whose it is
}

// census is who owned what of some pools at a time: it is read when a claim has met another node's, and now and then to
// find the blocks of nodes that are gone. Nobody follows it.
type census map[slotID]versioned

func readCensus(entries []store.Entry) census {
	c := census{}
	for _, e := range entries {
		pool, block, ok := parseSlotKey(e.Key)
		if !ok {
			continue
		}
		s, err := decodeSlot(e)
		c[slotID{pool, block}] = versioned{s, e.Revision, err != nil}
	}
	return c
}

// holding is a part of a block that a node owns.
type holding struct {
	slotID
	part netip.Prefix
	node string
}

func (at slotID) holdings(s slot, chosen func(node string) bool) (list []holding) {
	for _, p := range s.Parts {
		if chosen(p.Node) {
			list = append(list, holding{at, p.Prefix, p.Node})
		}
	}
	return list
}

// holdings returns the parts that chosen nodes own, in order.
func (c census) holdings(chosen func(node string) bool) (list []holding) {
	for at, s := range c {
		list = append(list, at.holdings(s.slot, chosen)...)
	}
	slices.SortFunc(list, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), a.part.Addr().Compare(b.part.Addr()), cmp.Compare(a.part.Bits(), b.part.Bits()), cmp.Compare(a.node, b.node))
	})
	return list
}

// owners counts the nodes that have something.
func (c census) owners() int {
	nodes := map[string]bool{}
	for _, s := range c {
		for _, p := range s.Parts {
			nodes[p.Node] = true
		}
	}
	return len(nodes)
}

// partly returns the parts of a pool that nobody owns, of blocks of which somebody owns another part.
func (c census) partly(p Pool, f family) (free []holding) {
	for at, s := range c {
		if at.pool != p.Name || familyOf(at.block) != f || !p.has(at.block) || s.opaque {
			continue
		}
		for _, part := range s.free(at.block) {
			free = append(free, holding{slotID: at, part: part})
		}
	}
	slices.SortFunc(free, func(a, b holding) int { return a.part.Addr().Compare(b.part.Addr()) })
	return free
}

// untouched returns a block of the family of which nobody owns anything, each with the same chance: were it the first after
// a random place, all who begin among those that are taken would meet. random returns a number below its argument.
func (c census) untouched(p Pool, f family, random func(uint64) uint64) (netip.Prefix, bool) {
	var taken []uint64
	for at, s := range c {
		if i, ok := p.indexOf(at.block); ok && at.pool == p.Name && familyOf(at.block) == f && (s.opaque || len(s.Parts) > 0) {
			taken = append(taken, i)
		}
	}
	count := p.count(f)
	if uint64(len(taken)) >= count {
		return netip.Prefix{}, false
	}
	slices.Sort(taken)
	nth := random(count - uint64(len(taken))) // of those that are free
	for _, i := range taken {
		if i > nth {
			break
		}
		nth++
	}
	return p.block(f, nth), true
}

// area is what is known of a shard, or of all when that is zero.
type area struct {
	census
	shard netip.Prefix
}

// untouched returns the shard's blocks of a pool of which nobody owns anything.
func (a area) untouched(p Pool) (free []netip.Prefix) {
	bits := p.blockBits(a.shard)
	for i := range uint64(1) << shardBits {
		block := nth(a.shard, bits, i)
		if s := a.census[slotID{p.Name, block}]; p.has(block) && len(s.Parts) == 0 && !s.opaque {
			free = append(free, block)
		}
	}
	return free
}

// covers tells whether a block is of what is known.
func (a area) covers(block netip.Prefix) bool { return !a.shard.IsValid() || shardOf(block) == a.shard }
