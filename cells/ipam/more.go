package ipam

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/endpointmanager"
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

// obtain asks for more, once, when there is nothing to be had.
func (a *allocator) obtain(ctx context.Context, req Request, t terms) (Allocation, string, error) {
	got, token, err := a.attempt(ctx, req, t)
	if more := a.asksFor(err); more != nil {
		if moreErr := more.More(ctx, poolOf(req.Pool), req.Want); moreErr != nil {
			err = fmt.Errorf("%w; asked for more: %w", err, moreErr)
		} else {
			got, token, err = a.attempt(ctx, req, t)
		}
	}
	if err != nil {
		return Allocation{}, "", fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	return got, token, nil
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
