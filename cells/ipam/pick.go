package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"porin.dev/porin/cells/endpointmanager"
)

// open returns the pool to allocate from.
func (a *allocator) open(name string) (*pool, error) {
	if a.mode == ModeDelegated {
		return nil, ErrDelegated
	}
	p := a.pools[name]
	if p == nil || !p.known {
		a.note(name)
		return nil, fmt.Errorf("pool %q: %w: there are %s", name, ErrUnknownPool, strings.Join(a.poolNames(), ", "))
	}
	p.asked = true
	if a.mode == ModeMultiPool && a.bootAt() >= a.fence {
		return nil, ErrCutOff
	}
	return p, nil
}

// pick finds an address of each family, and takes them when it has all.
func (a *allocator) pick(c *choice, want endpointmanager.Addresses, now time.Duration) error {
	var found [families]*slot
	for f := range families {
		s, err := a.find(c.pool, f, f.of(want), c.began, now)
		if err != nil {
			return err
		}
		found[f] = s
	}
	for f, s := range found {
		if s == nil {
			continue
		}
		family(f).set(&c.all, s.addr())
		if a.doubts(c.pool, s, c.began, now) {
			family(f).set(&c.ask, s.addr())
		}
		s.block.shelf.use(s)
	}
	return nil
}

// find returns the wanted address of a family, or the next; nil when the pool has not that family.
func (a *allocator) find(p *pool, f family, want netip.Addr, began, now time.Duration) (*slot, error) {
	if !want.IsValid() && !p.settings.has(f) {
		return nil, nil
	}
	if !want.IsValid() {
		s := p.next(f, began)
		if s == nil {
			return nil, p.exhausted(f, now)
		}
		return s, nil
	}
	b := a.index.block(want)
	if b == nil || b.shelf.pool != p {
		return nil, fmt.Errorf("address %s: %w: it is in no prefix of pool %s", want, ErrOutside, p.name)
	}
	s, err := b.find(want)
	if err != nil {
		return nil, fmt.Errorf("address %s of pool %s: %w", want, p.name, err)
	}
	return s, p.check(s, want, now)
}

// doubts tells whether somebody may still name an address that is about to be given out. One that still rests is given
// because the pool allows it, whoever names it; so is one that was asked about just now.
func (a *allocator) doubts(p *pool, s *slot, began, now time.Duration) bool {
	if len(a.quiet) == 0 || p.settings.Quarantine == 0 || s.since == never || s.since+maxRest < now+askAgain {
		return false
	}
	return s.state == free || s.state == held && s.asked < began
}
