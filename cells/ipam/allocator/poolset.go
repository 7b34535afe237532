package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/internal/task"
)

// poolSet has the pools, and this node's blocks of them. It is not safe for concurrent use.
type poolSet struct {
	byName        map[string]*pool
	order         []*pool // the same, to go through quickly
	index         index
	nodeAddresses nodeAddresses
	low           chan struct{} // has a token when a pool has come to have little
}

func newPoolSet() poolSet {
	return poolSet{byName: map[string]*pool{}, index: newIndex(), low: make(chan struct{}, 1)}
}

// pool returns the pool of that name, made if it is not there.
func (s *poolSet) pool(name string) *pool {
	p := s.byName[name]
	if p == nil {
		p = &pool{name: name}
		s.byName[name] = p
		s.order = append(s.order, p)
	}
	return p
}

// serving returns the pool to allocate from.
func (s *poolSet) serving(name string) (*pool, error) {
	p := s.byName[name]
	if p == nil || !p.known {
		known := strings.Join(s.knownNames(), ", ")
		return nil, fmt.Errorf("pool %q: %w: the pools are: %s", name, ErrUnknownPool, cmp.Or(known, "none"))
	}
	return p, nil
}

func (s *poolSet) names() []string { return slices.Sorted(maps.Keys(s.byName)) }

func (s *poolSet) knownNames() []string {
	return slices.DeleteFunc(s.names(), func(name string) bool { return !s.byName[name].known })
}

// configure sets the settings of a pool. Its excluded addresses do not apply to its blocks yet.
func (s *poolSet) configure(name string, settings Settings) *pool {
	p := s.pool(name)
	p.settings, p.known = settings, true
	return p
}

// deleteIfEmpty deletes a pool that nothing is left of.
func (s *poolSet) deleteIfEmpty(p *pool) {
	if !p.known && len(p.blocks()) == 0 {
		delete(s.byName, p.name)
		s.order = slices.DeleteFunc(s.order, func(other *pool) bool { return other == p })
	}
}

// block returns the pool's block, or nil.
func (s *poolSet) block(pool string, prefix netip.Prefix) *block {
	if b := s.index.blocks[prefix]; b != nil && b.list.pool.name == pool {
		return b
	}
	return nil
}

// add adds a block to give addresses from.
func (s *poolSet) add(b *block, l *freeList) {
	l.add(b)
	b.setExclude(l.pool.settings.Exclude)
	s.index.add(b)
	s.index.moveIn(b)
	s.nodeAddresses.markAll(&s.index)
}

// remove is the reverse of add. Nothing of the block is in use or rests.
func (s *poolSet) remove(b *block) {
	s.index.remove(b)
	b.list.remove(b)
	s.deleteIfEmpty(b.list.pool)
}

// expire frees what has rested.
func (s *poolSet) expire(now time.Duration) {
	for _, p := range s.order {
		p.expire(now)
	}
	s.index.outside.list.expire(now)
}

// eachList calls visit for every free list there is.
func (s *poolSet) eachList(visit func(*freeList)) {
	for _, p := range s.order {
		for _, lists := range p.lists {
			for _, l := range lists {
				visit(l)
			}
		}
	}
	visit(s.index.outside.list)
}

// usage shows the pools by their names.
func (s *poolSet) usage() (pools []PoolUsage) {
	for _, name := range s.names() {
		pool := PoolUsage{Name: name}
		for _, b := range s.byName[name].blocks() {
			shown := b.shown()
			shown.NodeAddresses = s.nodeAddresses.in(b)
			pool.Blocks = append(pool.Blocks, shown)
		}
		pools = append(pools, pool)
	}
	return pools
}

// reportIfLow tells when a pool has come to have too little of a family: once, and not at each address after that.
func (s *poolSet) reportIfLow(p *pool) {
	for f := range families {
		if !p.settings.has(f) || p.available(f) != p.settings.LowWatermark-1 {
			continue
		}
		task.Wake(s.low)
	}
}
