package ipam

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
)

// More has the cluster give this node more of a pool: anything, or the blocks of the addresses that are wanted. It returns
// when it has tried, or when ctx ends; an error says why there will be no more. It is asked without a lock, and may call
// [MultiPool].
type More interface {
	More(ctx context.Context, pool string, want endpointmanager.Addresses) error
}

// MoreFunc is a function as [More].
type MoreFunc func(ctx context.Context, pool string, want endpointmanager.Addresses) error

// More implements [More].
func (f MoreFunc) More(ctx context.Context, pool string, want endpointmanager.Addresses) error {
	return f(ctx, pool, want)
}

// obtain asks for more, once, when there is nothing to be had, and tries again whatever the answer is: there may be some by
// then, and an error of before may tell of what was then.
func (a *allocator) obtain(ctx context.Context, req Request, t terms) (Allocation, string, error) {
	got, token, err := a.attempt(ctx, req, t)
	if more := a.asksFor(err); more != nil {
		moreErr := more.More(ctx, poolOf(req.Pool), req.Want)
		first := err
		if got, token, err = a.attempt(ctx, req, t); err != nil {
			err = because(ctx, first, err, moreErr)
		}
	}
	if err != nil {
		return Allocation{}, "", fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	return got, token, nil
}

// because is the error that says most: why there will never be more, or what there is and why there is no more now.
func because(ctx context.Context, first, second, more error) error {
	if kind := fault.KindOf(more); more != nil && (kind == fault.Invalid || kind == fault.Conflict) {
		return more
	}
	if ctx.Err() != nil {
		second = first
	}
	switch {
	case more == nil:
		return second
	case errors.Is(second, ErrUnknownPool): // the store has not said yet which there are
		return fmt.Errorf("%w; %w", more, second)
	}
	return fmt.Errorf("%w; asked for more: %w", second, more)
}

// asksFor returns whom to ask for more after an error, or nil.
func (a *allocator) asksFor(err error) More {
	if !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrUnknownPool) && !errors.Is(err, ErrCutOff) && !errors.Is(err, ErrOutside) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.more
}

func poolOf(name string) string {
	if name == "" {
		return DefaultPool
	}
	return name
}
