package ipam

import (
	"cmp"
	"slices"
)

// drain ends that anything of a block is given out.
func (s *shelf) drain(b *block) {
	if b.drained {
		return
	}
	b.drained = true
	s.young = slices.DeleteFunc(s.young, func(other *block) bool { return other == b })
	b.known(func(e *slot) {
		if e.state == free {
			s.unlink(e)
			e.state = parked
		}
	})
}

// open is the reverse of drain.
func (s *shelf) open(b *block) {
	if !b.drained {
		return
	}
	b.drained = false
	s.young = append(s.young, b)
	var slots []*slot
	b.known(func(e *slot) {
		if e.state == parked {
			e.state = free
			slots = append(slots, e)
		}
	})
	slices.SortStableFunc(slots, func(x, y *slot) int { return cmp.Compare(x.since, y.since) })
	s.free.merge(slots)
}

// remove forgets a block.
func (s *shelf) remove(b *block) {
	b.known(s.unlink)
	is := func(other *block) bool { return other == b }
	s.young = slices.DeleteFunc(s.young, is)
	s.blocks = slices.DeleteFunc(s.blocks, is)
}

// reshape puts a block in the place of those that are parts of it, or of the one that it is a part of. What is known of
// their addresses is known of its own; what lies outside is forgotten.
func (s *shelf) reshape(b *block, olds []*block) {
	for _, old := range olds {
		old.known(func(e *slot) { s.move(e, b) })
		b.drained = b.drained || old.drained
		s.remove(old)
	}
	s.blocks = append(s.blocks, b)
	b.shelf = s
	if !b.drained {
		s.young = append(s.young, b)
	}
}

// move has a block know what is known of an address, in the same place of the same ring.
func (s *shelf) move(e *slot, to *block) {
	n, err := to.find(e.addr())
	if err != nil {
		return
	}
	block, offset := n.block, n.offset
	*n = *e
	n.block, n.offset = block, offset
	e.state, e.prev, e.next = fresh, nil, nil
	switch n.state {
	case used:
		to.used++
	case resting:
		to.resting++
		s.resting.relink(n)
	case due:
		to.resting++
		s.due.relink(n)
	case held:
		to.resting++
		s.held.relink(n)
	case free:
		s.free.relink(n)
	}
}
