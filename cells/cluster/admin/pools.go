package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// The errors of what people ask of pools.
var (
	ErrNoPool    = fault.New(fault.NotFound, "no such pool")
	ErrOverlap   = fault.New(fault.Conflict, "addresses of another pool")
	ErrPoolInUse = fault.New(fault.Conflict, "nodes have blocks of the pool")
	ErrChanged   = fault.New(fault.Conflict, "somebody else has changed the pool: read it again")
)

// Pools creates, changes and deletes pools.
//
// No two pools have an address in common, whoever makes them at the same time: addresses that are new in a pool are
// first written as pending; then all pools and blocks are listed, and only when no other pool has or wants any of them
// do they become the pool's. Before a new pool is written they are listed, too, so that an overlapping one is not seen
// by any node.
type Pools struct{ backend cluster.Backend }

// NewPools returns who administers the pools of a cluster.
func NewPools(b cluster.Backend) *Pools { return &Pools{b} }

// PoolUnreadable is the state of a pool in a list whose record cannot be read.
const PoolUnreadable cluster.PoolState = "unreadable"

// List returns all pools by name. A [PoolUnreadable] one has no more than that.
func (a *Pools) List(ctx context.Context) (list []cluster.Pool, err error) {
	for p, err := range a.backend.Pools.All(ctx) {
		if errors.Is(err, cluster.ErrUnreadable) {
			p.State, err = PoolUnreadable, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the pools: %w", err)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b cluster.Pool) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// checkPoolName is before the store, which has a rule of its own for keys.
func checkPoolName(name string) error {
	if err := v1.CheckPoolName(name); err != nil {
		return fault.New(fault.Invalid, fmt.Sprintf("pool name %.64q %s: want %s", name, err, v1.PoolNameRule))
	}
	return nil
}

// Get returns the pool, or [ErrNoPool].
func (a *Pools) Get(ctx context.Context, name string) (cluster.Pool, error) {
	if err := checkPoolName(name); err != nil {
		return cluster.Pool{}, err
	}
	p, err := a.backend.Pools.Get(ctx, name)
	if errors.Is(err, cluster.ErrNotFound) {
		return p, fmt.Errorf("pool %.64q: %w", name, ErrNoPool)
	}
	return p, err
}

// putTries bounds how often a change without a version begins again because another change was quicker.
const putTries = 20

// Put creates the pool, or changes the pool of its name. With a Version it changes only the pool that was read, or
// returns [ErrChanged]. The size of blocks cannot be changed: a size that is not set stays, and in a new pool gets the
// default.
func (a *Pools) Put(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	got, err := a.put(ctx, p)
	for tries := 1; p.Version == "" && errors.Is(err, ErrChanged) && tries < putTries; tries++ {
		got, err = a.put(ctx, p)
	}
	if err != nil {
		return cluster.Pool{}, fmt.Errorf("put pool %.64s: %w", p.Name, err)
	}
	return got, nil
}

func (a *Pools) put(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	if err := checkPoolName(p.Name); err != nil {
		return p, err
	}
	was, err := a.backend.Pools.Get(ctx, p.Name)
	switch {
	case errors.Is(err, cluster.ErrNotFound) && p.Version == "":
		return a.Create(ctx, p)
	case errors.Is(err, cluster.ErrNotFound):
		return p, ErrNoPool
	case err != nil:
		return p, err
	case p.Version != "" && p.Version != was.Version:
		return p, ErrChanged
	case was.Deleting:
		return p, fault.New(fault.Conflict, "it is being deleted")
	}
	was.State = undeleted(was) // who began to delete it will find that it has changed
	if p.IPv4BlockBits != 0 && p.IPv4BlockBits != was.IPv4BlockBits || p.IPv6BlockBits != 0 && p.IPv6BlockBits != was.IPv6BlockBits {
		return p, fault.New(fault.Invalid, fmt.Sprintf("the size of blocks cannot be changed, it is /%d and /%d: create another pool", was.IPv4BlockBits, was.IPv6BlockBits))
	}
	p.UID, p.State, p.IPv4BlockBits, p.IPv6BlockBits, p.Version = was.UID, was.State, was.IPv4BlockBits, was.IPv6BlockBits, was.Version
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return p, err
	}
	p.Pending = nil
	wanted := p.Prefixes
	if len(newPrefixes(wanted, was.Prefixes)) > 0 || p.State == cluster.PoolPending {
		p.Pending, p.Prefixes = wanted, was.Prefixes
	}
	if p, err = a.update(ctx, p); err != nil {
		return p, err
	}
	return a.accept(ctx, p, was)
}

// undeleted is the state of the pool when it is not being deleted.
func undeleted(p cluster.Pool) cluster.PoolState {
	switch {
	case p.State != cluster.PoolDeleting:
		return p.State
	case len(p.Prefixes) == 0:
		return cluster.PoolPending
	}
	return cluster.PoolAccepted
}

// update changes the pool that was read, or returns [ErrChanged].
func (a *Pools) update(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	p, err := a.backend.Pools.Update(ctx, p)
	if errors.Is(err, cluster.ErrConflict) {
		err = ErrChanged
	}
	return p, err
}

// Create is Put of a new pool. It returns [ErrChanged] if a pool of the name exists, and [ErrOverlap] if the pool
// overlaps other pools or blocks; then nothing is written. If nodes have blocks of a pool of that name, which the store
// has lost, the new pool gets that pool's UID.
func (a *Pools) Create(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return p, err
	}
	if _, err := a.backend.Pools.Get(ctx, p.Name); err == nil {
		return p, ErrChanged
	} else if !errors.Is(err, cluster.ErrNotFound) {
		return p, err
	}
	uid, err := a.lostUID(ctx, p)
	if err != nil {
		return p, err
	}
	p.UID, p.State, p.Pending, p.Prefixes, p.Version = cmp.Or(uid, rand.Text()), cluster.PoolPending, p.Prefixes, nil, ""
	if err := a.checkOverlap(ctx, p, nil); err != nil { // agents try again and again, and every agent watches pools
		return p, err
	}
	p, err = a.backend.Pools.Create(ctx, p)
	if errors.Is(err, cluster.ErrExists) {
		err = ErrChanged
	}
	if err != nil {
		return p, err
	}
	return a.accept(ctx, p, cluster.Pool{})
}

// lostUID returns the pool UID in blocks of a pool of that name, if these are also blocks of the new pool; else "".
func (a *Pools) lostUID(ctx context.Context, p cluster.Pool) (uid string, err error) {
	for b, err := range cluster.Readable(a.backend.Blocks.All(ctx, cluster.BlockFilter{Pool: p.Name})) {
		if err != nil {
			return "", fmt.Errorf("list the blocks: %w", err)
		}
		switch {
		case p.HasBlock(b.CIDR) && (uid == "" || uid == b.PoolUID):
			uid = b.PoolUID
		case slices.ContainsFunc(p.Prefixes, b.CIDR.Overlaps):
			return "", nil // checkOverlap returns the error
		}
	}
	return uid, nil
}

// Resume completes the begun creation of a pool.
func (a *Pools) Resume(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return a.accept(ctx, p, p)
}

// accept gives a pool its pending prefixes, or restores its previous state and says whose they are. A pool that
// has no others is deleted then. When that cannot be found out, a new pool stays pending until it is put again.
func (a *Pools) accept(ctx context.Context, p, was cluster.Pool) (cluster.Pool, error) {
	if len(p.Pending) == 0 {
		return p, nil
	}
	if err := a.checkOverlap(ctx, p, was.Prefixes); err != nil {
		ctx := context.WithoutCancel(ctx)
		switch {
		case p.State == cluster.PoolPending && errors.Is(err, ErrOverlap):
			return p, errors.Join(err, a.backend.Pools.Delete(ctx, p))
		case p.State == cluster.PoolPending:
			return p, err
		}
		was.Pending, was.Version = nil, p.Version
		_, undo := a.update(ctx, was)
		return p, errors.Join(err, undo)
	}
	p.Prefixes, p.Pending, p.State = p.Pending, nil, cluster.PoolAccepted
	return a.update(ctx, p)
}

// checkOverlap compares what a pool wants with all other pools and with the blocks of other pools.
func (a *Pools) checkOverlap(ctx context.Context, p cluster.Pool, was []netip.Prefix) error {
	pools, err := a.List(ctx)
	if err != nil {
		return err
	}
	for _, other := range pools {
		if other.Name == p.Name {
			continue
		}
		if other.State == PoolUnreadable {
			return fmt.Errorf("pool %s may have the same addresses: %w", other.Name, cluster.ErrUnreadable)
		}
		for _, wanted := range p.Pending {
			for _, theirs := range slices.Concat(other.Prefixes, other.Pending) {
				if wanted.Overlaps(theirs) {
					return fmt.Errorf("prefix %s: %w: %s of pool %s", wanted, ErrOverlap, theirs, other.Name)
				}
			}
		}
	}
	added := newPrefixes(p.Pending, was)
	for b, err := range a.backend.Blocks.All(ctx, cluster.BlockFilter{}) {
		unreadable := errors.Is(err, cluster.ErrUnreadable)
		if err != nil && !unreadable {
			return fmt.Errorf("list the blocks: %w", err)
		}
		for _, wanted := range added {
			switch {
			case !wanted.Overlaps(b.CIDR) || !unreadable && b.PoolUID == p.UID:
			case unreadable:
				return fmt.Errorf("prefix %s: %w: %w", wanted, ErrOverlap, err)
			default:
				return fmt.Errorf("prefix %s: %w: node %s has block %s of pool %s", wanted, ErrOverlap, b.Owner.Name, b.CIDR, b.Pool)
			}
		}
	}
	return nil
}

// newPrefixes returns the prefixes that are in now and not in was.
func newPrefixes(now, was []netip.Prefix) (added []netip.Prefix) {
	for _, p := range now {
		if !slices.Contains(was, p) {
			added = append(added, p)
		}
	}
	return added
}
