package multipool_test

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/multipool"
)

// plain gives out addresses in the simplest way.
type plain struct {
	mu     sync.Mutex // guards the fields below
	blocks map[netip.Prefix]*plainBlock
	used   map[netip.Addr]bool // also of no block of ours
	wanted []string
	reason error // why nothing is given out
}

type plainBlock struct {
	pool    string
	drained bool
}

func newPlain() *plain {
	return &plain{blocks: map[netip.Prefix]*plainBlock{}, used: map[netip.Addr]bool{}}
}

func (p *plain) Configure(cluster.Pool) {}
func (p *plain) Forget(string)          {}

func (p *plain) Add(pool string, block netip.Prefix) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks[block] = &plainBlock{pool: pool}
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
	if p.usedOf(block) > 0 {
		return errors.New("in use")
	}
	delete(p.blocks, block)
	return nil
}

func (p *plain) usedOf(block netip.Prefix) (n int) {
	for addr := range p.used {
		if block.Contains(addr) {
			n++
		}
	}
	return n
}

func (p *plain) Suspend(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = reason
}

func (p *plain) Used(_ string, block netip.Prefix) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usedOf(block)
}

func (p *plain) Endpoints() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.used)
}

func (p *plain) Usage(pool string) (list []multipool.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for block, b := range p.blocks {
		if b.pool == pool {
			list = append(list, multipool.Usage{Block: block, Capacity: int64(capacity(block)), Used: int64(p.usedOf(block)), Drained: b.drained})
		}
	}
	return list
}

func capacity(block netip.Prefix) int {
	if bits := block.Addr().BitLen() - block.Bits(); bits < 62 {
		return 1 << bits
	}
	return math.MaxInt
}

func (p *plain) Wanted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := slices.Clone(p.wanted)
	for _, b := range p.blocks {
		if !slices.Contains(names, b.pool) {
			names = append(names, b.pool)
		}
	}
	return names
}

// allocate gives out an address of the family, if there is one. given is called before anybody else can have it.
func (p *plain) allocate(f cluster.Family, given func(netip.Addr)) (netip.Addr, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for block, b := range p.blocks {
		if p.reason != nil || b.drained || cluster.FamilyOf(block.Addr()) != f {
			continue
		}
		for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
			if !p.used[addr] {
				p.used[addr] = true
				given(addr)
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

func (p *plain) release(addr netip.Addr, released func(netip.Addr)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, addr)
	released(addr)
}

func (p *plain) all() (list []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr := range p.used {
		list = append(list, addr)
	}
	return list
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func (p *plain) anyOf(pool string) netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	for block, b := range p.blocks {
		if b.pool == pool {
			return block.Addr()
		}
	}
	return netip.Addr{}
}
