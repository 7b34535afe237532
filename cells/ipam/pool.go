package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// pool is what this node has of a named pool: blocks, on shelves. It is not safe for concurrent use.
type pool struct {
	name     string
	settings Settings
	known    bool // its settings are
	asked    bool // somebody has asked for addresses of it
	// shelves are used up in their order: in mode pod-cidr each prefix has one, else each family.
	shelves [families][]*shelf
	alarm   *alarm // the allocator's
}

func (p *pool) newShelf(f family) *shelf {
	s := &shelf{pool: p}
	p.shelves[f] = append(p.shelves[f], s)
	return s
}

// shelf is the one shelf of a family.
func (p *pool) shelf(f family) *shelf {
	if len(p.shelves[f]) == 0 {
		return p.newShelf(f)
	}
	return p.shelves[f][0]
}

func (p *pool) blocks() (all []*block) {
	for _, s := range p.all() {
		all = append(all, s.blocks...)
	}
	return all
}

// all returns the shelves of both families.
func (p *pool) all() []*shelf { return append(slices.Clip(p.shelves[ipv4]), p.shelves[ipv6]...) }

func (p *pool) settle(now time.Duration) {
	for _, shelves := range p.shelves {
		for _, s := range shelves {
			s.settle(now)
		}
	}
}

// next returns the address to give out, or nil.
func (p *pool) next(f family) *slot {
	for _, s := range p.shelves[f] {
		if e := s.next(); e != nil {
			return e
		}
	}
	return nil
}

// oldest returns the address that rests for the longest time, if the pool allows that it is given out.
func (p *pool) oldest(f family) *slot {
	if !p.settings.ReuseResting {
		return nil
	}
	for _, s := range p.shelves[f] {
		if e := s.oldest(); e != nil {
			return e
		}
	}
	return nil
}

// asks tells whether anybody is asked about what has rested.
func (p *pool) asks() bool { return p.alarm != nil && p.settings.Quarantine > 0 }

func (p *pool) doubtful(f family, began time.Duration) bool {
	return slices.ContainsFunc(p.shelves[f], func(s *shelf) bool { return s.doubtful(began) })
}

// exhausted names the pool, its size and what holds it.
func (p *pool) exhausted(f family, now time.Duration) error {
	var parts []string
	for _, s := range p.shelves[f] {
		if len(s.blocks) > 0 {
			parts = append(parts, s.describe(now))
		}
	}
	if len(parts) == 0 {
		parts = []string{fmt.Sprintf("this node has no %s block of it", f)}
	}
	return fmt.Errorf("pool %s: %w: %s", p.name, ErrExhausted, strings.Join(parts, "; "))
}

func (s *shelf) describe(now time.Duration) string {
	var capacity, used, resting int
	for _, b := range s.blocks {
		capacity, used, resting = capacity+b.capacity(), used+b.used, resting+b.resting
	}
	what := s.blocks[0].prefix.String() + " has"
	if len(s.blocks) > 1 {
		what = fmt.Sprintf("%d blocks have", len(s.blocks))
	}
	text := fmt.Sprintf("%s %d, of which %d in use and %d in quarantine", what, capacity, used, resting)
	if e := s.resting.head; e != nil {
		text += fmt.Sprintf(" (the next is free in %s)", (e.since + s.pool.settings.Quarantine - now).Round(time.Millisecond))
	}
	if s.held.head != nil {
		text += "; connections still name some that have rested"
	}
	return text
}

// check says why the pool cannot give this very address now; nil when it can.
func (p *pool) check(s *slot, addr netip.Addr, now time.Duration) error {
	switch {
	case s.state == used:
		return fmt.Errorf("address %s of pool %s: %w", addr, p.name, ErrInUse)
	case s.state == held || s.state == due:
		return fmt.Errorf("address %s of pool %s: %w: connections still name it", addr, p.name, ErrQuarantined)
	case s.state == resting:
		left := s.since + p.settings.Quarantine - now
		return fmt.Errorf("address %s of pool %s: %w: it is free again in %s", addr, p.name, ErrQuarantined, left.Round(time.Second))
	case s.block.drained:
		return fmt.Errorf("address %s of pool %s: %w: its block %s is drained", addr, p.name, ErrOutside, s.block.prefix)
	}
	return nil
}

func (p *pool) status() v1.Pool {
	status := v1.Pool{Name: p.name, Ranges: []v1.Range{}}
	for _, b := range p.blocks() {
		status.Ranges = append(status.Ranges, b.status())
	}
	return status
}
