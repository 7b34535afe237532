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
func (a *allocator) pick(p *pool, want endpointmanager.Addresses, began, now time.Duration) (got endpointmanager.Addresses, err error) {
	var found [families]*slot
	for f := range families {
		if found[f], err = a.find(p, f, f.of(want), began, now); err != nil {
			return got, err
		}
	}
	for f, s := range found {
		if s != nil {
			s.block.shelf.use(s)
			family(f).set(&got, s.addr())
		}
	}
	return got, nil
}

// find returns the wanted address of a family, or the next; nil when the pool has not that family.
func (a *allocator) find(p *pool, f family, want netip.Addr, began, now time.Duration) (*slot, error) {
	if want.IsValid() {
		return a.findVery(p, want, began, now)
	}
	if !p.settings.has(f) {
		return nil, nil
	}
	if s := p.next(f); s != nil {
		return s, nil
	}
	if began != never && p.doubtful(f, began) {
		return nil, errDoubtful
	}
	if s := p.oldest(f); s != nil {
		return s, nil
	}
	return nil, p.exhausted(f, now)
}

// findVery returns the address that is wanted.
func (a *allocator) findVery(p *pool, want netip.Addr, began, now time.Duration) (*slot, error) {
	b := a.index.block(want)
	if b == nil || b.shelf.pool != p {
		return nil, fmt.Errorf("address %s: %w: it is in no prefix of pool %s", want, ErrOutside, p.name)
	}
	s, err := b.find(want)
	if err != nil {
		return nil, fmt.Errorf("address %s of pool %s: %w", want, p.name, err)
	}
	if began != never && s.state == due {
		return nil, errDoubtful
	}
	return s, p.check(s, want, now)
}
