package multipool

import (
	"math/rand/v2"
	"time"

	"porin.dev/porin/cells/cluster"
)

// listTime is the time between two lists of the blocks of a pool that is full.
const listTime = 10 * time.Minute

// poolFamily is a family of a pool.
type poolFamily struct {
	pool   string
	family cluster.Family
}

// searches say when to look again for a free block of pools that were full. It is not safe for concurrent use.
type searches struct {
	clock func() time.Duration
	rng   *rand.Rand
	first time.Duration // pause
	full  map[poolFamily]search
}

// search is what the node knows of a family of a pool that had no free block.
type search struct {
	next   time.Duration // when to look again
	pause  time.Duration
	listed time.Duration // when its blocks were listed last
}

// due reports whether it is time to look for a free block at all.
func (s *searches) due(at poolFamily) bool { return s.clock() >= s.full[at].next }

// mayList reports whether it is time to list the claimed blocks.
func (s *searches) mayList(at poolFamily) bool {
	one, ok := s.full[at]
	return !ok || s.clock()-one.listed >= listTime
}

// failed makes the pause longer.
func (s *searches) failed(at poolFamily, listed bool) {
	one, ok := s.full[at]
	if !ok {
		one.pause = s.first
	}
	if listed {
		one.listed = s.clock()
	}
	one.next = s.clock() + one.pause/2 + time.Duration(s.rng.Int64N(int64(one.pause)))
	one.pause = min(2*one.pause, max(maxSearchTime, s.first))
	s.full[at] = one
}

// succeeded forgets that a pool was full.
func (s *searches) succeeded(at poolFamily) { delete(s.full, at) }
