package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// pool is a named set of addresses of one or both families. The allocator knows nothing else of where addresses come
// from, and calls it under its lock.
type pool interface {
	// families says of which families the pool has addresses at all.
	families() (ipv4, ipv6 bool)
	// allocate gives out any address of the family, or returns [ErrExhausted].
	allocate(ipv6 bool, now time.Time) (netip.Addr, error)
	// take gives out this very address.
	take(addr netip.Addr, now time.Time) error
	// adopt takes an address that has been in use since before the agent started. It is false when the address is
	// not the pool's.
	adopt(addr netip.Addr) (bool, error)
	// release, giveBack, yield and remember take back an address; one that is not the pool's is passed over. One that is
	// given back was never used, and is free at once; so is one that is yielded, which another IPAM had given.
	release(addr netip.Addr, now time.Time)
	giveBack(addr netip.Addr)
	yield(addr netip.Addr, now time.Time)
	remember(addr netip.Addr, released time.Time)
	status(now time.Time) v1.Pool
}

// prefixPool is a pool of fixed prefixes: the node's own CIDRs.
type prefixPool struct {
	name   string
	ranges []*addressRange
}

func newPrefixPool(name string, prefixes []netip.Prefix, quarantine time.Duration) (*prefixPool, error) {
	p := &prefixPool{name: name}
	for _, prefix := range prefixes {
		r, err := newRange(prefix, quarantine)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
		p.ranges = append(p.ranges, r)
	}
	return p, nil
}

func (p *prefixPool) families() (ipv4, ipv6 bool) {
	for _, r := range p.ranges {
		if r.prefix.Addr().Is4() {
			ipv4 = true
		} else {
			ipv6 = true
		}
	}
	return ipv4, ipv6
}

func (p *prefixPool) allocate(ipv6 bool, now time.Time) (netip.Addr, error) {
	for _, r := range p.ranges {
		if r.prefix.Addr().Is6() != ipv6 {
			continue
		}
		if addr, ok := r.allocate(now); ok {
			return addr, nil
		}
	}
	return netip.Addr{}, p.exhausted(ipv6, now)
}

// exhausted names the pool, its size and what holds it.
func (p *prefixPool) exhausted(ipv6 bool, now time.Time) error {
	var parts []string
	for _, r := range p.ranges {
		if r.prefix.Addr().Is6() != ipv6 {
			continue
		}
		s := r.status(now)
		part := fmt.Sprintf("%s has %d, of which %d in use and %d in quarantine", s.Prefix, s.Capacity, s.Used, s.Quarantined)
		if s.Quarantined > 0 {
			part += fmt.Sprintf(" (the next is free in %s)", r.nextFree(now).Round(time.Millisecond))
		}
		parts = append(parts, part)
	}
	return fmt.Errorf("pool %s: %w: %s", p.name, ErrExhausted, strings.Join(parts, "; "))
}

func (p *prefixPool) take(addr netip.Addr, now time.Time) error {
	r, ok := p.rangeOf(addr)
	if !ok {
		return fmt.Errorf("address %s: %w: it is in no prefix of pool %s", addr, ErrOutside, p.name)
	}
	if err := r.take(addr, now); err != nil {
		return fmt.Errorf("address %s of pool %s: %w", addr, p.name, err)
	}
	return nil
}

func (p *prefixPool) adopt(addr netip.Addr) (bool, error) {
	r, ok := p.rangeOf(addr)
	if !ok {
		return false, nil
	}
	return true, r.adopt(addr)
}

func (p *prefixPool) release(addr netip.Addr, now time.Time) {
	if r, ok := p.rangeOf(addr); ok {
		r.release(addr, now)
	}
}

func (p *prefixPool) giveBack(addr netip.Addr) {
	if r, ok := p.rangeOf(addr); ok {
		r.giveBack(addr)
	}
}

func (p *prefixPool) yield(addr netip.Addr, now time.Time) {
	if r, ok := p.rangeOf(addr); ok {
		r.yield(addr, now)
	}
}

func (p *prefixPool) remember(addr netip.Addr, released time.Time) {
	if r, ok := p.rangeOf(addr); ok {
		r.remember(addr, released)
	}
}

func (p *prefixPool) status(now time.Time) v1.Pool {
	s := v1.Pool{Name: p.name, Ranges: []v1.Range{}}
	for _, r := range p.ranges {
		s.Ranges = append(s.Ranges, r.status(now))
	}
	return s
}

func (p *prefixPool) rangeOf(addr netip.Addr) (*addressRange, bool) {
	for _, r := range p.ranges {
		if r.prefix.Contains(addr) {
			return r, true
		}
	}
	return nil, false
}
