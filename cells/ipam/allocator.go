package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/internal/boottime"
)

// allocator is the one [Allocator], [Reserver] and [MultiPool].
type allocator struct {
	mode   string
	quiet  []Namer
	start  time.Time // of its clock
	bootAt func() time.Duration

	mu           sync.Mutex // guards the fields below, and the pools
	more         More
	fence        time.Duration // until when anything is given out in mode multi-pool, by the boot clock
	seq          uint64
	pools        map[string]*pool
	order        []*pool // the same, to go through quickly
	index        index
	owners       map[Handle]*record
	addresses    map[netip.Addr]*record
	reservations []*record // by their ends
	spare        []*record
	tombstones   []tombstone
	strangers    []string // pools that somebody has asked for and that are not known, in that order
}

// New returns the [Allocator] of a node.
func New(cfg Config) (Allocator, error) {
	n, err := NewNode(cfg)
	return n.Allocator, err
}

// Node is one allocator by all its sides.
type Node struct {
	Allocator Allocator
	Reserver  Reserver
	MultiPool MultiPool // for mode multi-pool
}

// NewNode is [New] for whoever needs the other sides. quiet are asked before a released address is given out.
func NewNode(cfg Config, quiet ...Namer) (Node, error) {
	a, err := newAllocator(cfg, quiet, boottime.Now)
	if err != nil {
		return Node{}, err
	}
	return Node{a, a, a}, nil
}

func newAllocator(cfg Config, quiet []Namer, boot func() time.Duration) (*allocator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &allocator{
		mode: cfg.Mode, quiet: quiet, start: time.Now(), bootAt: boot, seq: uint64(boottime.Now()), pools: map[string]*pool{},
		index: newIndex(), owners: map[Handle]*record{}, addresses: map[netip.Addr]*record{},
	}
	if cfg.Mode != ModePodCIDR {
		return a, nil
	}
	return a, a.ownPrefixes(cfg)
}

// ownPrefixes makes the one pool of mode pod-cidr.
func (a *allocator) ownPrefixes(cfg Config) error {
	prefixes, err := cfg.prefixes()
	if err != nil {
		return err
	}
	p := a.pool(DefaultPool)
	p.known, p.settings.Quarantine = true, cfg.Quarantine
	for _, prefix := range prefixes {
		b, err := newSubnet(prefix)
		if err != nil {
			return fmt.Errorf("pool %s: %w", DefaultPool, err)
		}
		f := familyOf(prefix.Addr())
		p.newShelf(f).add(b)
		a.index.add(b)
		p.settings.IPv4, p.settings.IPv6 = p.settings.IPv4 || f == ipv4, p.settings.IPv6 || f == ipv6
	}
	return nil
}

// now is the allocator's own clock.
func (a *allocator) now() time.Duration { return time.Since(a.start) }

// pool returns the pool of that name, made if it is not there. It expects the lock.
func (a *allocator) pool(name string) *pool {
	p := a.pools[name]
	if p == nil {
		p = &pool{name: name}
		a.pools[name] = p
		a.order = append(a.order, p)
	}
	return p
}

// Allocate implements [Allocator].
func (a *allocator) Allocate(ctx context.Context, req Request) (Allocation, error) {
	got, _, err := a.obtain(ctx, req, terms{})
	return got, err
}

// tidy ends what is over by now, and returns now. Whatever looks at the state or changes it does so first.
func (a *allocator) tidy() time.Duration {
	now := a.now()
	for len(a.reservations) > 0 && a.reservations[0].until <= now {
		a.release(a.reservations[0], a.reservations[0].until)
	}
	for _, p := range a.order {
		p.settle(now)
	}
	return now
}

// poolNames are those of the pools whose settings are known.
func (a *allocator) poolNames() []string {
	var names []string
	for name, p := range a.pools {
		if p.known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
