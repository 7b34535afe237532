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

// allocator is the one [Allocator], [Reserver], [MultiPool] and [Books].
type allocator struct {
	mode   string
	quiet  []Namer
	turn   chan struct{} // whose turn it is to ask them
	alarm  *alarm
	start  time.Time // of its clock
	bootAt func() time.Duration

	mu           sync.Mutex // guards the fields below, and the pools
	low          low
	more         More
	fence        time.Duration // until when anything is given out in mode multi-pool, by the boot clock
	seq          uint64
	pools        map[string]*pool
	order        []*pool // the same, to go through quickly
	index        index
	owners       map[Handle]*record
	legacies     map[Handle]int // to how many owners name it
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
	Asker     *Asker
	Books     Books
}

// NewNode is [New] for whoever needs the other sides. quiet are asked before a released address is given out: by the Asker
// while it runs.
func NewNode(cfg Config, quiet ...Namer) (Node, error) {
	a, err := newAllocator(cfg, quiet, boottime.Now)
	if err != nil {
		return Node{}, err
	}
	return Node{a, a, a, &Asker{allocator: a}, a}, nil
}

func newAllocator(cfg Config, quiet []Namer, boot func() time.Duration) (*allocator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &allocator{
		mode: cfg.Mode, quiet: quiet, turn: make(chan struct{}, 1), start: time.Now(), bootAt: boot, seq: uint64(boottime.Now()), pools: map[string]*pool{},
		index: newIndex(), owners: map[Handle]*record{}, legacies: map[Handle]int{},
		addresses: map[netip.Addr]*record{},
	}
	if len(quiet) > 0 {
		a.alarm = newAlarm()
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
		p = &pool{name: name, alarm: a.alarm}
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
func (a *allocator) tidy() time.Duration { return a.tidyBy(a.now()) }

// tidyBy is tidy for who has read the clock.
func (a *allocator) tidyBy(now time.Duration) time.Duration {
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
