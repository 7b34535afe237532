package ipam

import (
	"context"
	"fmt"
	"time"

	"porin.dev/porin/cells/endpointmanager"
)

// maxQuestions bounds how many addresses of a family one allocation asks others about.
const maxQuestions = 8

// choice is what an owner is about to have: in use, and nobody's yet.
type choice struct {
	pool  *pool
	began time.Duration // when the owner asked; what was asked about since is not asked about again
	all   endpointmanager.Addresses
	ask   endpointmanager.Addresses // those of all that somebody may still name
}

// attempt allocates from what there is. Others are asked without the lock.
func (a *allocator) attempt(ctx context.Context, req Request, t terms) (Allocation, string, error) {
	began := never
	for range maxQuestions {
		if err := ctx.Err(); err != nil {
			return Allocation{}, "", err
		}
		c, got, err := a.choose(req, t, began)
		began = c.began
		if err != nil || c.ask == (endpointmanager.Addresses{}) {
			return got, t.token, err
		}
		named := endpointmanager.Addresses{}
		for f := range families {
			if addr := f.of(c.ask); a.named(addr) {
				f.set(&named, addr)
			}
		}
		got, err = a.conclude(req, t, c, named)
		if err != nil || got.Owner != "" {
			return got, t.token, err
		}
	}
	return Allocation{}, "", fmt.Errorf("pool %s: %w: connections still name what has rested: the first %d were asked about",
		poolOf(req.Pool), ErrExhausted, maxQuestions)
}

// choose gives all, or says why not. When others are to be asked before, the choice says about what, and nothing is given.
func (a *allocator) choose(req Request, t terms, began time.Duration) (c choice, got Allocation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	if c.began = began; began == never {
		c.began = now
	}
	if got, done, err := a.standing(req, t); done {
		return c, got, err
	}
	if c.pool, err = a.open(poolOf(req.Pool)); err != nil {
		return c, got, err
	}
	if err := a.pick(&c, req.Want, now); err != nil {
		return c, got, err
	}
	if c.ask == (endpointmanager.Addresses{}) {
		got = a.give(req, t, c)
	}
	return c, got, nil
}

// conclude gives a choice of which nothing is named. Else what is named rests on, the rest is given back, and there is
// neither an allocation nor an error, unless the named one and no other was wanted.
func (a *allocator) conclude(req Request, t terms, c choice, named endpointmanager.Addresses) (got Allocation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	got, overtaken, err := a.standing(req, t) // the owner has asked twice at the same time
	if !overtaken && named == (endpointmanager.Addresses{}) {
		return a.give(req, t, c), nil
	}
	for f := range families {
		addr := f.of(c.all)
		if !addr.IsValid() {
			continue
		}
		s := a.index.slot(addr) // its block may have been reshaped, but not removed
		if addr != f.of(named) {
			s.block.shelf.giveBack(s)
			continue
		}
		s.block.shelf.hold(s, now)
		if addr == f.of(req.Want) && err == nil && !overtaken {
			err = c.pool.check(s, addr, now)
		}
	}
	return got, err
}

// give makes a choice the owner's.
func (a *allocator) give(req Request, t terms, c choice) Allocation {
	r := a.enter(Allocation{Owner: req.Owner, Legacy: req.Legacy, Pool: c.pool.name, Addresses: c.all, Since: time.Now()})
	a.reserve(r, t)
	return r.Allocation
}
