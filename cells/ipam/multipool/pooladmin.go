package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// PoolAdmin creates, changes and deletes pools.
//
// No two pools have an address in common, whoever makes them at the same time: addresses that are new in a pool are first written as
// pending; then all pools and blocks are listed, and only when nobody else has or wants any of them do they become the pool's.
type PoolAdmin struct{ backend cluster.Backend }

// NewPoolAdmin returns who administers the pools of a cluster.
func NewPoolAdmin(b cluster.Backend) *PoolAdmin { return &PoolAdmin{b} }

// PoolUnreadable is the state of a pool in a list whose record cannot be read.
const PoolUnreadable cluster.PoolState = "unreadable"

// List returns all pools by name. Of one that is [PoolUnreadable] there is no more than that.
func (a *PoolAdmin) List(ctx context.Context) (list []cluster.Pool, err error) {
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

// Get returns the pool, or [ErrNoPool].
func (a *PoolAdmin) Get(ctx context.Context, name string) (cluster.Pool, error) {
	p, err := a.backend.Pools.Get(ctx, name)
	if errors.Is(err, cluster.ErrNotFound) {
		return p, fmt.Errorf("pool %.64q: %w", name, ErrNoPool)
	}
	return p, err
}

// putTries bounds how often a change without a version begins again because somebody else was quicker.
const putTries = 20

// Put creates the pool, or changes the one of its name. With a Version it changes only the pool that was read, or returns [ErrChanged].
// The size of blocks cannot be changed; one that is not set gets its default.
func (a *PoolAdmin) Put(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	got, err := a.put(ctx, p)
	for tries := 1; p.Version == "" && errors.Is(err, ErrChanged) && tries < putTries; tries++ {
		got, err = a.put(ctx, p)
	}
	if err != nil {
		return cluster.Pool{}, fmt.Errorf("put pool %.64s: %w", p.Name, err)
	}
	return got, nil
}

func (a *PoolAdmin) put(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	was, err := a.backend.Pools.Get(ctx, p.Name)
	switch {
	case errors.Is(err, cluster.ErrNotFound) && p.Version == "":
		return a.create(ctx, p)
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
	return a.accept(ctx, a.update(ctx, p), was)
}

// undeleted is the state of the pool when nobody deletes it.
func undeleted(p cluster.Pool) cluster.PoolState {
	switch {
	case p.State != cluster.PoolDeleting:
		return p.State
	case len(p.Prefixes) == 0:
		return cluster.PoolPending
	}
	return cluster.PoolAccepted
}

// result is a pool that was written, or why not.
type result struct {
	pool cluster.Pool
	err  error
}

func (a *PoolAdmin) update(ctx context.Context, p cluster.Pool) result {
	got, err := a.backend.Pools.Update(ctx, p)
	if errors.Is(err, cluster.ErrConflict) {
		err = ErrChanged
	}
	return result{got, err}
}

func (a *PoolAdmin) create(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return p, err
	}
	p.UID = rand.Text()
	return a.restore(ctx, p)
}

// restore creates the pool with its UID: blocks that nodes have of it are its own.
func (a *PoolAdmin) restore(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	p.State, p.Pending, p.Prefixes, p.Version = cluster.PoolPending, p.Prefixes, nil, ""
	got, err := a.backend.Pools.Create(ctx, p)
	if errors.Is(err, cluster.ErrExists) {
		err = ErrChanged
	}
	return a.accept(ctx, result{got, err}, cluster.Pool{})
}

// accept gives a pool its pending prefixes, or makes it what it was before them and says whose they are. A pool that has no others is
// deleted then. When that cannot be found out, a new pool stays pending until somebody puts it again.
func (a *PoolAdmin) accept(ctx context.Context, r result, was cluster.Pool) (cluster.Pool, error) {
	p := r.pool
	if r.err != nil || len(p.Pending) == 0 {
		return p, r.err
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
		return p, errors.Join(err, a.update(ctx, was).err)
	}
	p.Prefixes, p.Pending, p.State = p.Pending, nil, cluster.PoolAccepted
	r = a.update(ctx, p)
	return r.pool, r.err
}

// checkOverlap compares what a pool wants with all other pools and with the blocks of other pools.
func (a *PoolAdmin) checkOverlap(ctx context.Context, p cluster.Pool, was []netip.Prefix) error {
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

func newPrefixes(now, was []netip.Prefix) (added []netip.Prefix) {
	for _, p := range now {
		if !slices.Contains(was, p) {
			added = append(added, p)
		}
	}
	return added
}

// Delete removes the pool. One that nodes have blocks of is [ErrPoolInUse], and nothing changes.
func (a *PoolAdmin) Delete(ctx context.Context, name string) error {
	if err := a.delete(ctx, name); err != nil {
		return fmt.Errorf("delete pool %.64s: %w", name, err)
	}
	return nil
}

func (a *PoolAdmin) delete(ctx context.Context, name string) error {
	p, err := a.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := a.checkUnused(ctx, p); errors.Is(err, ErrPoolInUse) {
		return errors.Join(err, a.undelete(ctx, p)) // a deletion that was interrupted
	} else if err != nil {
		return err
	}
	p.State = cluster.PoolDeleting // who claims a block reads the pool afterwards
	r := a.update(ctx, p)
	if r.err != nil {
		return r.err
	}
	if err := a.checkUnused(ctx, p); err != nil {
		return errors.Join(err, a.undelete(ctx, r.pool))
	}
	return a.backend.Pools.Delete(ctx, r.pool)
}

// undelete ends the deletion of a pool that stays.
func (a *PoolAdmin) undelete(ctx context.Context, p cluster.Pool) error {
	if p.Deleting || p.State != cluster.PoolDeleting {
		return nil
	}
	p.State = undeleted(p)
	return a.update(context.WithoutCancel(ctx), p).err
}

// checkUnused returns [ErrPoolInUse] with the nodes that have blocks of the pool.
func (a *PoolAdmin) checkUnused(ctx context.Context, p cluster.Pool) error {
	owners := map[string]bool{}
	for b, err := range a.backend.Blocks.All(ctx, cluster.BlockFilter{Pool: p.Name}) {
		if errors.Is(err, cluster.ErrUnreadable) {
			if slices.ContainsFunc(p.Prefixes, b.CIDR.Overlaps) {
				return fmt.Errorf("%w: %w", ErrPoolInUse, err)
			}
			continue // another pool's
		}
		if err != nil {
			return fmt.Errorf("list the blocks of the pool: %w", err)
		}
		owners[b.Owner.Name] = true
	}
	if len(owners) == 0 {
		return nil
	}
	var names []string
	for name := range owners {
		names = append(names, name)
	}
	slices.Sort(names)
	more := ""
	if len(names) > 10 {
		names, more = names[:10], fmt.Sprintf(" and %d more", len(owners)-10)
	}
	return fmt.Errorf("%w: %s%s; delete their pods first, and disable the pool: the nodes give the blocks back when nothing of them has been in use for a while",
		ErrPoolInUse, strings.Join(names, ", "), more)
}

// resume goes on with a pool that somebody has begun to create.
func (a *PoolAdmin) resume(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return a.accept(ctx, result{p, nil}, p)
}
