package blocks_test

import (
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/ipam/blocks"
)

// plain is a Local of the simplest kind: a list of addresses for each block.
type plain struct {
	clock func() time.Duration

	mu     sync.Mutex // guards the fields below
	blocks map[netip.Prefix]*plainBlock
	used   map[netip.Addr]bool // also of no block of ours
	until  time.Duration
}

type plainBlock struct{ drained bool }

func newPlain(clock func() time.Duration) *plain {
	return &plain{clock: clock, blocks: map[netip.Prefix]*plainBlock{}, used: map[netip.Addr]bool{}}
}

// each calls f with the addresses of a block until it is false.
func each(block netip.Prefix, f func(netip.Addr) bool) {
	for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
		if !f(addr) {
			return
		}
	}
}

func (p *plain) Configure(blocks.Pool) {}
func (p *plain) Forget(string)         {}

func (p *plain) Add(_ string, block netip.Prefix) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.blocks {
		if block.Overlaps(other) && other != block {
			delete(p.blocks, other)
		}
	}
	p.blocks[block] = &plainBlock{}
	return nil
}

func (p *plain) Drain(_ string, block netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.blocks[block]; b != nil {
		b.drained = true
	}
}

func (p *plain) Remove(_ string, block netip.Prefix) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inUse(block) > 0 {
		return blocks.ErrInUse
	}
	for own := range p.blocks {
		if own == block {
			delete(p.blocks, own)
		} else if own.Overlaps(block) && own.Bits() == block.Bits()-1 { // half of it
			delete(p.blocks, own)
			other := netip.PrefixFrom(own.Addr(), block.Bits())
			if other == block {
				other = netip.PrefixFrom(lastOf(block).Next(), block.Bits())
			}
			p.blocks[other] = &plainBlock{}
		}
	}
	return nil
}

func lastOf(block netip.Prefix) (last netip.Addr) {
	each(block, func(addr netip.Addr) bool { last = addr; return true })
	return last
}

// inUse expects the lock.
func (p *plain) inUse(block netip.Prefix) (n int) {
	each(block, func(addr netip.Addr) bool {
		if p.used[addr] {
			n++
		}
		return true
	})
	return n
}

func (p *plain) Usage(string) (list []blocks.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for block, b := range p.blocks {
		list = append(list, blocks.Usage{
			Block: block, Capacity: 1 << (block.Addr().BitLen() - block.Bits()), Used: p.inUse(block), Drained: b.drained,
		})
	}
	return list
}

func (p *plain) Wanted() []string { return []string{"default"} }
func (p *plain) Low(int, func())  {}

func (p *plain) Until(deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = deadline
}

// allocate gives out an address of an own block. taken is called with it before anybody else can get it.
func (p *plain) allocate(taken func(netip.Addr)) (addr netip.Addr, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clock() > p.until {
		return addr, false
	}
	for block, b := range p.blocks {
		if b.drained {
			continue
		}
		each(block, func(a netip.Addr) bool {
			if !p.used[a] {
				addr, ok = a, true
			}
			return !ok
		})
		if ok {
			p.used[addr] = true
			taken(addr)
			return addr, true
		}
	}
	return addr, false
}

func (p *plain) release(addr netip.Addr, freed func(netip.Addr)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[addr] {
		freed(addr)
		delete(p.used, addr)
	}
}

func (p *plain) all() (list []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr := range p.used {
		list = append(list, addr)
	}
	return list
}
