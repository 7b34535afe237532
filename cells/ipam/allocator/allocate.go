package allocator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Allocate gives the owner one address of each family of the pool, or none and one of the package's errors. An owner that has
// addresses already gets them again, unless it wants others: that is [ErrInUse].
func (a *Allocator) Allocate(req Request) (Allocation, error) {
	return NewSource(a, nil).Allocate(context.Background(), req)
}

// allocate gives the owner what it has already, or what is free on this node, or says why not.
func (a *Allocator) allocate(req Request, options reservationOptions) (got Allocation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wall := time.Now()
	now := a.expireAt(wall.Sub(a.start)) // by the clock that nobody sets, which both times have, too
	if got, done, err := a.existing(req, options); done {
		return got, err
	}
	p, err := a.pools.serving(req.pool())
	if err == nil {
		err = a.suspended
	}
	if err == nil && options.token == "" {
		err = p.checkNamespace(req.Namespace)
	}
	if err != nil {
		return got, err
	}
	addresses, err := p.choose(&a.pools.index, req.Want, now)
	if err != nil {
		a.cleanups.hurry()
		return got, err
	}
	allocation := Allocation{Owner: req.Owner, PodHandle: req.PodHandle, Pool: p.name, Since: wall}
	for f, e := range addresses {
		if e != nil {
			family(f).set(&allocation.Addresses, e.addr)
		}
	}
	r := a.owners.add(allocation, addresses)
	a.reservations.add(r, options, now, wall)
	a.tellIfLow(p)
	return r.Allocation, nil
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

// tellIfLow tells when a pool has come to have too little of a family: once, and not at each address after that.
func (a *Allocator) tellIfLow(p *pool) {
	for f := range families {
		if !p.settings.has(f) || p.available(f) != p.settings.LowWatermark-1 {
			continue
		}
		select {
		case a.low <- struct{}{}:
		default: // it was told, and nobody has looked yet
		}
	}
}
