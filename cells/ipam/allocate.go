package ipam

import (
	"context"
	"errors"
	"time"
)

// maxQuestions bounds how often one allocation asks who still names what has rested.
const maxQuestions = 2

// asOfNow stands for the time at which an allocation begins.
const asOfNow = never + 1

// errDoubtful says that nothing is free, and that there may be when others are asked who still names what has rested.
var errDoubtful = errors.New("nobody was asked who still names what has rested")

// attempt allocates from what there is. Only when nothing is free it asks others, without the lock, and once about all
// addresses: what the [Asker] does before anybody needs it.
func (a *allocator) attempt(ctx context.Context, req Request, t terms) (Allocation, string, error) {
	began := asOfNow
	for range maxQuestions {
		if err := ctx.Err(); err != nil {
			return Allocation{}, "", err
		}
		got, now, err := a.choose(req, t, began)
		if err == nil || !errors.Is(err, errDoubtful) {
			return got, t.token, err
		}
		began = now
		a.inquire(ctx, began)
	}
	got, _, err := a.choose(req, t, never)
	return got, t.token, err
}

// choose gives the owner what it has already or what is free, or says why not. What was asked about since began is not worth
// another question; [never] is that nothing is.
func (a *allocator) choose(req Request, t terms, began time.Duration) (got Allocation, _ time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wall := time.Now()
	now := a.tidyBy(wall.Sub(a.start)) // by the clock that nobody sets, which both times have, too
	if began == asOfNow {
		began = now
	}
	if got, done, err := a.standing(req, t); done {
		return got, began, err
	}
	p, err := a.open(poolOf(req.Pool))
	if err != nil {
		return got, began, err
	}
	addresses, err := a.pick(p, req.Want, began, now)
	if err != nil {
		return got, began, err
	}
	r := a.enter(Allocation{Owner: req.Owner, Legacy: req.Legacy, Pool: p.name, Addresses: addresses, Since: wall})
	a.reserve(r, t)
	a.spent(p)
	return r.Allocation, began, nil
}
