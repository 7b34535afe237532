package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
)

// Refill has the cluster give this node more of a pool: anything, or the blocks of the addresses that are wanted. It returns
// when it has tried, or when ctx ends; an error says why there will be no more. It is called without a lock, and may call
// the allocator.
type Refill func(ctx context.Context, pool string, want endpointmanager.Addresses) error

// lowWatermark is whom to tell when little is left.
type lowWatermark struct {
	below int64
	tell  func()
}

// Allocate gives the owner one address of each family of the pool, or none and one of the package's errors. An owner that has
// addresses already gets them again, unless it wants others: that is [ErrInUse]. When nothing is free it asks for more, once,
// and waits for the answer or the end of ctx.
func (a *Allocator) Allocate(ctx context.Context, req Request) (Allocation, error) {
	got, err := a.allocateOrRefill(ctx, req, reservationOptions{})
	if err == nil && req.Reservation != "" && !a.isLive(req.Reservation) {
		err = a.store.Delete(req.Reservation)
	}
	return got, err
}

// allocateOrRefill tries again after a refill whatever the answer is: there may be some by then, and an error of before may tell
// of what was then.
func (a *Allocator) allocateOrRefill(ctx context.Context, req Request, options reservationOptions) (Allocation, error) {
	got, err := a.allocateLocal(ctx, req, options)
	if refill := a.refillAfter(err); refill != nil {
		refillErr := refill(ctx, req.pool(), req.Want)
		first := err
		if got, err = a.allocateLocal(ctx, req, options); err != nil {
			err = mostTelling(ctx, first, err, refillErr)
		}
	}
	if err != nil {
		return Allocation{}, fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	return got, nil
}

// refillAfter returns whom to ask for more after an error, or nil.
func (a *Allocator) refillAfter(err error) Refill {
	if !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrUnknownPool) && !errors.Is(err, ErrOutside) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refill
}

// mostTelling is the error that says why there will never be more, or what there is and why there is no more now.
func mostTelling(ctx context.Context, first, second, refill error) error {
	if kind := fault.KindOf(refill); refill != nil && (kind == fault.Invalid || kind == fault.Conflict) {
		return refill
	}
	if ctx.Err() != nil {
		second = first
	}
	switch {
	case refill == nil:
		return second
	case errors.Is(second, ErrUnknownPool): // the store has not said yet which there are
		return fmt.Errorf("%w; %w", refill, second)
	}
	return fmt.Errorf("%w; asked for more: %w", second, refill)
}

// allocateLocal gives the owner what it has already, or what is free on this node, or says why not.
func (a *Allocator) allocateLocal(ctx context.Context, req Request, options reservationOptions) (got Allocation, err error) {
	if err := ctx.Err(); err != nil {
		return got, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wall := time.Now()
	now := a.settleAt(wall.Sub(a.start)) // by the clock that nobody sets, which both times have, too
	if got, done, err := a.existing(req, options); done {
		return got, err
	}
	p, err := a.servingPool(req.pool())
	if err == nil && options.token == "" {
		err = p.checkNamespace(req.Namespace)
	}
	if err != nil {
		return got, err
	}
	addresses, err := p.choose(&a.index, req.Want, now)
	if err != nil {
		if a.wakeCleanup != nil {
			a.wakeCleanup(true)
		}
		return got, err
	}
	allocation := Allocation{Owner: req.Owner, PodHandle: req.PodHandle, Pool: p.name, Since: wall}
	for f, e := range addresses {
		if e != nil {
			family(f).set(&allocation.Addresses, e.addr)
		}
	}
	r := a.addRecord(allocation, addresses)
	a.setReservation(r, options)
	a.tellIfLow(p)
	return r.Allocation, nil
}

// servingPool returns the pool to allocate from.
func (a *Allocator) servingPool(name string) (*pool, error) {
	p := a.pools[name]
	if p == nil || !p.known {
		a.noteUnknownPool(name)
		return nil, fmt.Errorf("pool %q: %w: there are %s", name, ErrUnknownPool, strings.Join(a.knownPools(), ", "))
	}
	p.asked = true
	if a.suspended != nil {
		return nil, a.suspended
	}
	return p, nil
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

func (a *Allocator) knownPools() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(a.pools)) {
		if a.pools[name].known {
			names = append(names, name)
		}
	}
	return names
}

// tellIfLow tells when a pool has come to have too little of a family: once, and not at each address after that.
func (a *Allocator) tellIfLow(p *pool) {
	if a.lowWatermark.tell == nil {
		return
	}
	for f := range families {
		if p.settings.has(f) && p.available(f) == a.lowWatermark.below-1 {
			a.lowWatermark.tell()
			return
		}
	}
}
