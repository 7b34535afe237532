package engine

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// sweep goes over all ports of a protocol in their order, and knows which of the rules that match a peer hit the present ones. It takes time for each end of a rule's
// ports, and not for each rule at each of them.
type sweep struct {
	edges []edge
	open  []int32  // by index of the rule: ranges that have begun
	hits  []uint64 // a bit for each index
	rules int
}

// edge is where a range of a rule's ports begins or has ended.
type edge struct {
	port  uint32 // up to 65536
	rule  int32  // index
	begin bool
}

// newSweep is for the rules of the table with these indexes. The ports have names.
func newSweep(t *table, rules []int32, ports []model.NamedPort, protocol model.Protocol) *sweep {
	s := &sweep{open: make([]int32, len(rules)), hits: make([]uint64, (len(rules)+63)/64), rules: len(rules)}
	for i, number := range rules {
		r := &t.rules[number]
		if r.layer7 != nil && !r.layer7.concerns(protocol) {
			continue
		}
		if len(r.ports) == 0 {
			s.hits[i/64] |= 1 << (i % 64)
		}
		for _, p := range r.ports {
			for first, last := range resolvePort(p, ports, protocol) {
				s.edges = append(s.edges, edge{uint32(first), int32(i), true}, edge{uint32(last) + 1, int32(i), false})
			}
		}
	}
	slices.SortFunc(s.edges, func(x, y edge) int { return cmp.Compare(x.port, y.port) })
	return s
}

// ranges goes over the ports, from one edge to the next.
func (s *sweep) ranges() iter.Seq2[uint16, uint16] {
	return func(yield func(first, last uint16) bool) {
		edges := s.edges
		for first := uint32(0); first <= 65535; {
			for ; len(edges) > 0 && edges[0].port == first; edges = edges[1:] {
				s.pass(edges[0])
			}
			end := uint32(65536)
			if len(edges) > 0 {
				end = edges[0].port
			}
			if !yield(uint16(first), uint16(end-1)) {
				return
			}
			first = end
		}
	}
}

func (s *sweep) pass(e edge) {
	if e.begin {
		s.open[e.rule]++
	} else {
		s.open[e.rule]--
	}
	if word, bit := e.rule/64, uint64(1)<<(e.rule%64); s.open[e.rule] > 0 {
		s.hits[word] |= bit
	} else {
		s.hits[word] &^= bit
	}
}

// next returns the index of the first rule from i on that hits the present ports, or the number of rules.
func (s *sweep) next(i int) int {
	for word := i / 64; word < len(s.hits); word++ {
		left := s.hits[word]
		if word == i/64 {
			left &= ^uint64(0) << (i % 64)
		}
		if left != 0 {
			return 64*word + bits.TrailingZeros64(left)
		}
	}
	return s.rules
}
