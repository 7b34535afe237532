package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// DefaultPool is the pool of whoever asks for none.
const DefaultPool = "default"

// Settings are how a pool's addresses are given out.
type Settings struct {
	// IPv4 and IPv6 are the families that every owner gets an address of. If the pool has a family and this node has no
	// block of it yet, an allocation waits: no owner gets half.
	IPv4, IPv6 bool
	// Quarantine is how long a released address is not given out.
	Quarantine time.Duration
	// ReuseResting has the address that rests for the longest time given out when nothing else is free.
	ReuseResting bool
	// Exclude are addresses that are not given out. Addresses in use stay.
	Exclude []netip.Prefix
	// LowWatermark is how many free addresses of each family a node keeps: [Pools.Low] tells when there are less; 0 is
	// never.
	LowWatermark int64
	// AllowedNamespaces are the namespaces whose pods may have addresses; none is all, and also owners that are no pods.
	AllowedNamespaces []string
}

func (s Settings) has(f family) bool {
	if f == ipv6 {
		return s.IPv6
	}
	return s.IPv4
}

// pool is what this node has of a named pool. It is not safe for concurrent use.
type pool struct {
	name     string
	settings Settings
	known    bool // its settings are
	// lists are used up in their order: each subnet has one, and each family has one for all other blocks.
	lists [families][]*freeList
}

func (p *pool) newList(f family) *freeList {
	l := &freeList{pool: p}
	p.lists[f] = append(p.lists[f], l)
	return l
}

// list is the list of the family's blocks.
func (p *pool) list(f family) *freeList {
	if len(p.lists[f]) == 0 {
		return p.newList(f)
	}
	return p.lists[f][0]
}

func (p *pool) blocks() (all []*block) {
	for _, lists := range p.lists {
		for _, l := range lists {
			all = append(all, l.blocks...)
		}
	}
	return all
}

func (p *pool) expire(now time.Duration) {
	for _, lists := range p.lists {
		for _, l := range lists {
			l.expire(now)
		}
	}
}

// choose finds an address of each family of the pool: the wanted one, or the next. It changes nothing.
func (p *pool) choose(x *index, want endpoint.Addresses, now time.Duration) (found [families]*address, err error) {
	for f := range families {
		if addr := f.of(want); addr.IsValid() {
			found[f], err = p.requested(x, addr, now)
		} else if p.settings.has(f) {
			found[f], err = p.next(f, now)
		}
		if err != nil {
			removeUnused(found)
			return found, err
		}
	}
	if found[ipv4] == nil && found[ipv6] == nil {
		err = fmt.Errorf("pool %s: %w: it has no family", p.name, ErrExhausted)
	}
	return found, err
}

// removeUnused has nothing be known of addresses that were looked at and not taken.
func removeUnused(all [families]*address) {
	for _, e := range all {
		if e != nil && e.state == unused && !e.ofNode {
			e.block.remove(e)
		}
	}
}

// next returns the address of a family to give out.
func (p *pool) next(f family, now time.Duration) (*address, error) {
	for _, l := range p.lists[f] {
		if e := l.next(); e != nil {
			return e, nil
		}
	}
	if p.settings.ReuseResting {
		for _, l := range p.lists[f] {
			if e := l.oldest(); e != nil {
				return e, nil
			}
		}
	}
	return nil, p.exhausted(f, now)
}

// exhausted names the pool, its size and what holds it.
func (p *pool) exhausted(f family, now time.Duration) error {
	var parts []string
	for _, l := range p.lists[f] {
		if len(l.blocks) > 0 {
			parts = append(parts, l.describe(now))
		}
	}
	if len(parts) == 0 {
		return fmt.Errorf("pool %s: %w: this node has no %s block of it", p.name, errNoOwnBlock, f)
	}
	return fault.WithHint(fmt.Errorf("pool %s: %w: %s", p.name, ErrExhausted, strings.Join(parts, "; ")), hintExhausted)
}

// requested returns the very address that is wanted, or says why it cannot be had now.
func (p *pool) requested(x *index, addr netip.Addr, now time.Duration) (*address, error) {
	b := x.block(addr)
	if b == nil || b.list.pool != p {
		return nil, fmt.Errorf("address %s: %w: it is in no prefix of pool %s", addr, ErrOutside, p.name)
	}
	if !b.canAllocate(addr) {
		return nil, fmt.Errorf("address %s of pool %s: %w", addr, p.name, b.refusal(addr))
	}
	e := b.address(addr)
	if err := e.check(now); err != nil {
		return e, fmt.Errorf("address %s of pool %s: %w", addr, p.name, err)
	}
	return e, nil
}

// check says why an address cannot be given out now; nil when it can.
func (e *address) check(now time.Duration) error {
	switch {
	case e.excluded:
		return fmt.Errorf("%w: it is excluded", ErrOutside)
	case e.ofNode:
		return fmt.Errorf("%w by the node itself", ErrInUse)
	case e.state == inUse:
		return ErrInUse
	case e.state == uncleaned || e.state == resting:
		if left := e.since + e.block.list.pool.settings.Quarantine - now; left > 0 {
			return fmt.Errorf("%w: it is free again in %s", ErrQuarantined, left.Round(time.Second))
		}
		return fmt.Errorf("%w: the connections of its last owner are being deleted", ErrQuarantined)
	case e.block.drained:
		return fmt.Errorf("%w: its block %s is drained", ErrOutside, e.block.prefix)
	}
	return nil
}

// available counts the addresses of a family that may be given out now.
func (p *pool) available(f family) (n int64) {
	for _, l := range p.lists[f] {
		n += l.available
	}
	return n
}

// shownNamespaces bounds how many namespaces an error names.
const shownNamespaces = 10

// checkNamespace returns [ErrNamespace] when the pool is not for pods of the namespace.
func (p *pool) checkNamespace(namespace string) error {
	allowed := p.settings.AllowedNamespaces
	if len(allowed) == 0 || slices.Contains(allowed, namespace) {
		return nil
	}
	names := strings.Join(allowed[:min(len(allowed), shownNamespaces)], ", ")
	if more := len(allowed) - shownNamespaces; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("pool %s: %w: it is for pods of %s, and not of %q", p.name, ErrNamespace, names, namespace)
}
