package probe

import (
	"math/rand/v2"

	"porin.dev/porin/cells/cluster"
)

// sampler chooses the nodes of a round: each round has a random part of them, and none comes again before all had their
// turn.
type sampler struct {
	rand    *rand.Rand
	waiting []cluster.NodeID // of the current pass, in random order
}

// take returns at most so many of the nodes, in random order. Nodes that came since the pass began wait for the next
// one.
func (s *sampler) take(all []cluster.NodeID, most int) (chosen []cluster.NodeID) {
	if len(all) <= most {
		s.waiting = nil
		return s.shuffled(all)
	}
	present, taken := map[cluster.NodeID]bool{}, map[cluster.NodeID]bool{}
	for _, id := range all {
		present[id] = true
	}
	for len(chosen) < most {
		if len(s.waiting) == 0 {
			s.waiting = s.shuffled(all)
		}
		id := s.waiting[0]
		s.waiting = s.waiting[1:]
		if present[id] && !taken[id] {
			taken[id] = true
			chosen = append(chosen, id)
		}
	}
	return chosen
}

func (s *sampler) shuffled(all []cluster.NodeID) []cluster.NodeID {
	order := append([]cluster.NodeID(nil), all...)
	s.rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
