package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// allocator is the one [Allocator].
type allocator struct {
	mode string

	mu     sync.Mutex // guards the fields below, and the pools
	pools  map[string]pool
	owners map[Handle]Allocation
}

// New returns an [Allocator] for the node's own prefixes.
func New(cfg Config) (Allocator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	prefixes, err := cfg.prefixes()
	if err != nil {
		return nil, err
	}
	p, err := newPrefixPool(DefaultPool, prefixes, cfg.Quarantine)
	if err != nil {
		return nil, err
	}
	return &allocator{mode: cfg.Mode, pools: map[string]pool{DefaultPool: p}, owners: map[Handle]Allocation{}}, nil
}

// Allocate implements [Allocator].
func (a *allocator) Allocate(ctx context.Context, req Request) (Allocation, error) {
	if err := ctx.Err(); err != nil {
		return Allocation{}, fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if has, ok := a.owners[req.Owner]; ok {
		return a.again(has), has.satisfies(req)
	}
	allocation, err := a.allocate(req, time.Now())
	if err != nil {
		return Allocation{}, fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	a.owners[req.Owner] = allocation
	return allocation, nil
}

// again notes that an owner has asked for what it has. It expects the lock.
func (a *allocator) again(has Allocation) Allocation {
	has.Asked++
	has.Kept = false
	a.owners[has.Owner] = has
	return has
}

// satisfies tells whether what an owner has is what it asks for when it asks again.
func (a Allocation) satisfies(req Request) error {
	differs := func(has, want netip.Addr) bool { return want.IsValid() && has != want }
	if differs(a.Addresses.IPv4, req.Want.IPv4) || differs(a.Addresses.IPv6, req.Want.IPv6) {
		return fmt.Errorf("allocate for %s: %w: it has %v already", a.Owner, ErrInUse, a.Addresses.List())
	}
	return nil
}

// allocate gives all or nothing. It expects the lock.
func (a *allocator) allocate(req Request, now time.Time) (_ Allocation, err error) {
	name := req.Pool
	if name == "" {
		name = DefaultPool
	}
	p, ok := a.pools[name]
	if !ok {
		return Allocation{}, fmt.Errorf("pool %q: %w: there are %s", name, ErrUnknownPool, strings.Join(a.poolNames(), ", "))
	}
	out := Allocation{Owner: req.Owner, Pool: name, Since: now}
	defer func() {
		if err != nil {
			for _, addr := range out.Addresses.List() {
				p.giveBack(addr)
			}
		}
	}()
	ipv4, ipv6 := p.families()
	if out.Addresses.IPv4, err = one(p, ipv4, false, req.Want.IPv4, now); err != nil {
		return Allocation{}, err
	}
	if out.Addresses.IPv6, err = one(p, ipv6, true, req.Want.IPv6, now); err != nil {
		return Allocation{}, err
	}
	return out, nil
}

// one gives the wanted address of a family, or any.
func one(p pool, has, ipv6 bool, want netip.Addr, now time.Time) (netip.Addr, error) {
	switch {
	case want.IsValid():
		if err := p.take(want, now); err != nil {
			return netip.Addr{}, err
		}
		return want, nil
	case has:
		return p.allocate(ipv6, now)
	}
	return netip.Addr{}, nil
}

// Adopt implements [Allocator].
func (a *allocator) Adopt(allocation Allocation) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if has, ok := a.owners[allocation.Owner]; ok {
		if has.Addresses == allocation.Addresses {
			a.again(has)
			return nil
		}
		return fmt.Errorf("adopt for %s: %w: it has %v already", allocation.Owner, ErrInUse, has.Addresses.List())
	}
	var taken []netip.Addr
	for _, addr := range allocation.Addresses.List() {
		if err := a.adoptOne(addr); err != nil {
			for _, addr := range taken { // it has been in use until now
				a.releaseOne(addr, allocation.External, time.Now())
			}
			return fmt.Errorf("adopt %s for %s: %w", addr, allocation.Owner, err)
		}
		taken = append(taken, addr)
	}
	a.owners[allocation.Owner] = allocation
	return nil
}

// adoptOne finds the pool of an address. One that is in no pool any more, as the configuration has changed, must
// have no other owner.
func (a *allocator) adoptOne(addr netip.Addr) error {
	var conflict error
	for _, p := range a.pools {
		ours, err := p.adopt(addr)
		if ours && err == nil {
			return nil
		}
		if errors.Is(err, ErrInUse) {
			conflict = err
		}
	}
	for _, other := range a.owners {
		if slices.Contains(other.Addresses.List(), addr) {
			return fmt.Errorf("%w by %s", ErrInUse, other.Owner)
		}
	}
	return conflict
}

// Release implements [Allocator].
func (a *allocator) Release(owner Handle) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	allocation, ok := a.owners[owner]
	if ok {
		a.release(allocation, time.Now())
	}
	return ok
}

// ReleaseListed implements [Allocator].
func (a *allocator) ReleaseListed(allocation Allocation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.owners[allocation.Owner] == allocation && allocation.Owner != ""
	if ok {
		a.release(allocation, time.Now())
	}
	return ok
}

// release expects the lock.
func (a *allocator) release(allocation Allocation, now time.Time) {
	delete(a.owners, allocation.Owner)
	for _, addr := range allocation.Addresses.List() {
		a.releaseOne(addr, allocation.External, now)
	}
}

func (a *allocator) releaseOne(addr netip.Addr, external bool, now time.Time) {
	for _, p := range a.pools {
		if external {
			p.yield(addr, now)
		} else {
			p.release(addr, now)
		}
	}
}

// Keep implements [Allocator].
func (a *allocator) Keep(owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if allocation, ok := a.owners[owner]; ok {
		allocation.Kept = true
		a.owners[owner] = allocation
	}
}

// List implements [Allocator].
func (a *allocator) List() []Allocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.owners))
}

// Quarantine implements [Allocator].
func (a *allocator) Quarantine(addr netip.Addr, released time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// From now on the clock that nobody sets counts, and what is in the future is now.
	now := time.Now()
	released = now.Add(-max(0, now.Sub(released)))
	for _, p := range a.pools {
		p.remember(addr, released)
	}
}

// Usage implements [Allocator].
func (a *allocator) Usage() v1.IPAM {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	usage := v1.IPAM{Mode: a.mode, Pools: []v1.Pool{}, Allocations: []v1.Allocation{}}
	for _, name := range a.poolNames() {
		usage.Pools = append(usage.Pools, a.pools[name].status(now))
	}
	for _, allocation := range a.owners {
		for _, addr := range allocation.Addresses.List() {
			usage.Allocations = append(usage.Allocations, v1.Allocation{
				Address: addr, Pool: allocation.Pool, Owner: string(allocation.Owner), Since: allocation.Since.UTC(),
			})
		}
	}
	slices.SortFunc(usage.Allocations, func(x, y v1.Allocation) int { return x.Address.Compare(y.Address) })
	return usage
}

func (a *allocator) poolNames() []string {
	var names []string
	for name := range a.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
