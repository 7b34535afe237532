package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

// The faults of what people ask of pools.
var (
	ErrNoPool    = fault.New(fault.NotFound, "no such pool")
	ErrOverlap   = fault.New(fault.Conflict, "addresses of another pool")
	ErrPoolInUse = fault.New(fault.Conflict, "nodes have blocks of the pool")
)

// Pools are the cluster's pools: one object in the store, so that no two overlap whoever makes them at the same time.
type Pools struct{ store store.Store }

// NewPools returns the pools of a store.
func NewPools(s store.Store) *Pools { return &Pools{s} }

// List returns all pools by name.
func (p *Pools) List(ctx context.Context) ([]Pool, error) {
	list, _, err := p.read(ctx)
	return list, err
}

// Get returns one pool, or [ErrNoPool].
func (p *Pools) Get(ctx context.Context, name string) (Pool, error) {
	list, _, err := p.read(ctx)
	if err != nil {
		return Pool{}, err
	}
	i, err := find(list, name)
	if err != nil {
		return Pool{}, err
	}
	return list[i], nil
}

// Put makes a pool, or changes the one of its name. What it leaves out gets its default. A prefix that a pool no longer has
// is drained: what is in use of it stays, and nothing more is given out. The size of its blocks stays as it was, as they
// are there.
func (p *Pools) Put(ctx context.Context, pool Pool) (Pool, error) {
	err := p.change(ctx, func(list []Pool) ([]Pool, error) {
		rest, was := slices.Clone(list), Pool{}
		if i, err := find(list, pool.Name); err == nil {
			was = list[i]
			pool.IPv4BlockBits, pool.IPv6BlockBits = was.IPv4BlockBits, was.IPv6BlockBits
			rest = slices.Delete(rest, i, i+1)
		}
		pool = pool.WithDefaults()
		err := errors.Join(pool.Validate(), checkOverlap(rest, pool))
		if err == nil {
			err = p.checkLeftovers(ctx, pool, was)
		}
		return append(rest, pool), err
	})
	if err != nil {
		return Pool{}, fmt.Errorf("put pool %.64s: %w", pool.Name, err)
	}
	return pool, nil
}

// Delete removes a pool. It is disabled first, and the nodes get some time to give back what they do not use of it. When
// they have some in use it is as it was, and the error is [ErrPoolInUse].
func (p *Pools) Delete(ctx context.Context, name string, wait time.Duration) error {
	err := p.delete(ctx, name, wait)
	if err != nil {
		return fmt.Errorf("delete pool %.64s: %w", name, err)
	}
	return nil
}

func (p *Pools) delete(ctx context.Context, name string, wait time.Duration) error {
	was, err := p.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := p.disable(ctx, name, true); err != nil {
		return err
	}
	owners, err := p.awaitNoOwners(ctx, name, wait)
	if err == nil && len(owners) > 0 {
		err = fmt.Errorf("%w: %s; delete their pods first, and wait until their addresses have rested (%s or longer)",
			ErrPoolInUse, strings.Join(owners, ", "), was.Quarantine)
	}
	if err != nil {
		return errors.Join(err, p.disable(context.WithoutCancel(ctx), name, was.Disabled))
	}
	return p.change(ctx, func(list []Pool) ([]Pool, error) {
		return slices.DeleteFunc(slices.Clone(list), func(p Pool) bool { return p.Name == name }), nil
	})
}

func (p *Pools) disable(ctx context.Context, name string, yes bool) error {
	return p.change(ctx, func(list []Pool) ([]Pool, error) {
		i, err := find(list, name)
		if err != nil {
			return nil, err
		}
		list = slices.Clone(list)
		list[i].Disabled = yes
		return list, nil
	})
}

// ownersInterval is how often it is asked who has blocks of a pool that is to go.
const ownersInterval = 50 * time.Millisecond

// awaitNoOwners returns who has blocks of the pool yet when the time is over, or nobody sooner.
func (p *Pools) awaitNoOwners(ctx context.Context, name string, wait time.Duration) (owners []string, err error) {
	for end := time.Now().Add(wait); ; {
		owners, err = p.owners(ctx, name)
		if err != nil || len(owners) == 0 || time.Now().After(end) {
			return owners, err
		}
		select {
		case <-time.After(ownersInterval):
		case <-ctx.Done():
			return owners, ctx.Err()
		}
	}
}

// owners names the nodes that have a part of the pool, each once.
func (p *Pools) owners(ctx context.Context, name string) (owners []string, err error) {
	entries, _, err := p.store.List(ctx, poolKey(name))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		s, err := decodeSlot(e)
		if err != nil {
			return nil, err
		}
		for _, part := range s.Parts {
			owners = append(owners, part.Node)
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners), nil
}

func (p *Pools) read(ctx context.Context) (list []Pool, revision int64, err error) {
	e, err := p.store.Get(ctx, poolsKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the pools: %w", err)
	}
	list, err = decodePools(e)
	return list, e.Revision, err
}

// changeTries bounds how often a change begins anew because another was quicker.
const changeTries = 100

// change writes what edit makes of the pools, from what they are at that very moment.
func (p *Pools) change(ctx context.Context, edit func([]Pool) ([]Pool, error)) error {
	for range changeTries {
		list, revision, err := p.read(ctx)
		if err != nil {
			return err
		}
		if list, err = edit(list); err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
		value := encode(poolList{list})
		if revision == 0 {
			_, err = p.store.Create(ctx, poolsKey, value, nil)
		} else {
			_, err = p.store.CompareAndSwap(ctx, poolsKey, revision, value)
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	return fmt.Errorf("%w %d times in a row", store.ErrConflict, changeTries)
}

func find(list []Pool, name string) (int, error) {
	i := slices.IndexFunc(list, func(p Pool) bool { return p.Name == name })
	if i >= 0 {
		return i, nil
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return 0, fmt.Errorf("pool %.64q: %w: there are %s", name, ErrNoPool, strings.Join(names, ", "))
}

func checkOverlap(list []Pool, pool Pool) error {
	for _, other := range list {
		if a, b, yes := pool.overlaps(other); yes {
			return fmt.Errorf("prefix %s: %w: %s of pool %s", a, ErrOverlap, b, other.Name)
		}
	}
	return nil
}

// checkLeftovers refuses addresses that are new in a pool while nodes still have some of them as those of another one, or in
// blocks of another size: they were taken out of there, and are in use yet. A node that claims reads the pools afterwards, so
// no block comes from there after this look.
func (p *Pools) checkLeftovers(ctx context.Context, pool, was Pool) error {
	parts, err := Owned(ctx, p.store, "")
	if err != nil {
		return err
	}
	for _, part := range parts {
		for _, prefix := range pool.Prefixes {
			ofIt := part.Pool == pool.Name && pool.blockBits(prefix) == part.Block.Bits()
			if prefix.Overlaps(part.Prefix) && !ofIt && !slices.Contains(was.Prefixes, prefix) {
				return fmt.Errorf("prefix %s: %w: node %s has %s as addresses of pool %s yet", prefix, ErrOverlap, part.Node, part.Prefix, part.Pool)
			}
		}
	}
	return nil
}

// Part is what a node owns of a pool.
type Part struct {
	Pool   string
	Block  netip.Prefix // the whole of which it is a part
	Prefix netip.Prefix
	Node   string
}

// Owned returns what is owned, by a node or, for "", by any.
func Owned(ctx context.Context, s store.Store, node string) (list []Part, err error) {
	entries, _, err := s.List(ctx, blocksPrefix)
	if err != nil {
		return nil, fmt.Errorf("read the blocks: %w", err)
	}
	for _, e := range entries {
		pool, block, ok := parseSlotKey(e.Key)
		one, err := decodeSlot(e)
		if err != nil || !ok {
			return nil, fmt.Errorf("read block %s: %w", e.Key, err)
		}
		for _, p := range one.Parts {
			if node == "" || p.Node == node {
				list = append(list, Part{pool, block, p.Prefix, p.Node})
			}
		}
	}
	return list, nil
}
