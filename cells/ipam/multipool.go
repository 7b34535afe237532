package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/internal/fault"
)

// MultiPool is the other side of the allocator in mode multi-pool: what this node owns of the cluster's pools, and how it
// is told. Nothing is given out of a pool before it is configured, nor before the first Until. No method blocks.
//
// Who owns which block is not known here, and no store: package localblocks makes this what package blocks asks for.
type MultiPool interface {
	// Configure says how a pool's addresses are given out, now and from now on.
	Configure(pool string, s Settings)
	// Forget says that there is no such pool any more. What is in use of it stays.
	Forget(pool string)
	// Add lets a block be given out from, but for what is in use of it or rests already. One that is there is drained no
	// longer; one of which parts are there is the whole of it from now on.
	Add(pool string, block netip.Prefix) error
	// Drain ends that anything is given out from a block. What is in use stays.
	Drain(pool string, block netip.Prefix)
	// Remove takes away a block, or half of one, of which nothing is in use or rests; else it is [ErrBlockInUse], and
	// nothing changes. One that is not there is a success.
	Remove(pool string, block netip.Prefix) error
	// Blocks returns the blocks of a pool, in no order.
	Blocks(pool string) []Block
	// Wanted returns the pools that somebody has asked for addresses of, and those that there are blocks of.
	Wanted() []string
	// Until says until when anything may be given out at all, by the boot clock.
	Until(deadline time.Duration)
	// Low says who is told when a pool comes to have fewer free addresses of a family than so many. tell is called with a
	// lock held: it does not block, and does not call back.
	Low(below int, tell func())
	// Ask says who is asked when a pool has nothing to give. Nil is nobody.
	Ask(more More)
}

// Block is what is given out of a block. What is left is Capacity - Used - Resting.
type Block struct {
	Prefix                  netip.Prefix
	Capacity, Used, Resting int
	Drained                 bool
}

// maxBlockBits is the size of the largest block that is added: log2 of [maxBlock].
const maxBlockBits = 16

var errOverlap = fault.New(fault.Conflict, "it overlaps another block")

// Configure implements [MultiPool].
func (a *allocator) Configure(name string, s Settings) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pool(name)
	p.settings, p.known = s, true
	if i := slices.Index(a.strangers, name); i >= 0 {
		p.asked = true
		a.strangers = slices.Delete(a.strangers, i, i+1)
	}
	a.tidy() // by what holds now
	a.alarm.by(a.now())
}

// Forget implements [MultiPool].
func (a *allocator) Forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pools[name]; p != nil {
		p.known, p.asked = false, false
		a.sweep(p)
	}
}

// sweep forgets a pool that nothing is left of.
func (a *allocator) sweep(p *pool) {
	if !p.known && len(p.blocks()) == 0 {
		delete(a.pools, p.name)
		a.order = slices.DeleteFunc(a.order, func(other *pool) bool { return other == p })
	}
}

// Ask implements [MultiPool].
func (a *allocator) Ask(more More) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.more = more
}

// Until implements [MultiPool].
func (a *allocator) Until(deadline time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fence = deadline
}

// Add implements [MultiPool].
func (a *allocator) Add(name string, prefix netip.Prefix) error {
	if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().BitLen()-prefix.Bits() > maxBlockBits {
		return fault.New(fault.Invalid, fmt.Sprintf("add block %s: want a prefix of at most %d addresses", prefix, maxBlock))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	parts := a.index.overlapping(prefix)
	for _, b := range parts {
		if b.shelf.pool.name != name || b.prefix.Bits() < prefix.Bits() {
			return fmt.Errorf("add block %s of pool %s: %w, %s of pool %s", prefix, name, errOverlap, b.prefix, b.shelf.pool.name)
		}
	}
	if len(parts) == 1 && parts[0].prefix == prefix {
		parts[0].shelf.open(parts[0])
		return nil
	}
	a.put(newBlock(prefix), a.pool(name).shelf(familyOf(prefix.Addr())), parts)
	return nil
}

// Drain implements [MultiPool].
func (a *allocator) Drain(name string, prefix netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	for _, b := range a.own(name, prefix) {
		b.shelf.drain(b)
	}
}

// Remove implements [MultiPool].
func (a *allocator) Remove(name string, prefix netip.Prefix) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	found := a.own(name, prefix)
	for _, b := range found {
		if b.prefix.Bits() < prefix.Bits()-1 {
			return fault.New(fault.Invalid, fmt.Sprintf("remove %s: want block %s, or half of it", prefix, b.prefix))
		}
		if n := b.busy(prefix); n > 0 {
			return fmt.Errorf("remove %s of pool %s: %w: %d of %s", prefix, name, ErrBlockInUse, n, b.prefix)
		}
	}
	for _, b := range found {
		a.cut(b, prefix)
	}
	return nil
}

// Blocks implements [MultiPool].
func (a *allocator) Blocks(name string) (list []Block) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	p := a.pools[name]
	if p == nil {
		return nil
	}
	for _, b := range p.blocks() {
		list = append(list, Block{Prefix: b.prefix, Capacity: b.capacity(), Used: b.used, Resting: b.resting, Drained: b.drained})
	}
	return list
}
