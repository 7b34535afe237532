package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"porin.dev/porin/cells/cluster"
)

// Delete deletes the pool. When nodes have blocks of it, it returns [ErrPoolInUse], and nothing changes.
func (a *Pools) Delete(ctx context.Context, name string) error {
	if err := a.delete(ctx, name); err != nil {
		return fmt.Errorf("delete pool %.64s: %w", name, err)
	}
	return nil
}

func (a *Pools) delete(ctx context.Context, name string) error {
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
	if p, err = a.update(ctx, p); err != nil {
		return err
	}
	err = a.checkUnused(ctx, p)
	if err == nil && p.Name == cluster.DefaultPool { // agents do not create it again; without agents there is no record of the cluster
		err = changeInfo(ctx, a.backend.Info, func(info *cluster.ClusterInfo) error { info.DefaultPoolRemoved = true; return nil })
		if errors.Is(err, cluster.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		return errors.Join(err, a.undelete(ctx, p))
	}
	return a.backend.Pools.Delete(ctx, p)
}

// undelete ends the deletion of a pool that stays.
func (a *Pools) undelete(ctx context.Context, p cluster.Pool) error {
	if p.Deleting || p.State != cluster.PoolDeleting {
		return nil
	}
	p.State = undeleted(p)
	_, err := a.update(context.WithoutCancel(ctx), p)
	return err
}

// checkUnused returns [ErrPoolInUse] with the nodes that have blocks of the pool. It deletes the blocks of nodes that
// were deleted: claims that arrived later.
func (a *Pools) checkUnused(ctx context.Context, p cluster.Pool) error {
	ids, owners := map[cluster.NodeID]bool{}, map[string]bool{}
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
		ids[b.Owner] = true
	}
	for id := range ids {
		freed, err := a.freeOrphans(ctx, id)
		if err != nil {
			return err
		}
		if !freed {
			owners[id.Name] = true
		}
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
	return fmt.Errorf("%w: %s%s; %s", ErrPoolInUse, strings.Join(names, ", "), more, adviceInUse)
}

// freeOrphans deletes the blocks of a node that was deleted. In a recovery they stay, and when another node uses
// addresses of them.
func (a *Pools) freeOrphans(ctx context.Context, id cluster.NodeID) (freed bool, err error) {
	deleted, err := cluster.NodeDeleted(ctx, a.backend, id)
	if err != nil || !deleted {
		return false, err
	}
	info, _, err := a.backend.Info.Get(ctx)
	if err != nil || info.Recovery != nil {
		return false, err
	}
	err = NewNodes(a.backend).Delete(ctx, id, false)
	if errors.Is(err, ErrBlocksInUse) || errors.Is(err, ErrConflictsUnknown) {
		return false, nil
	}
	if errors.Is(err, ErrNoNode) { // another was quicker
		err = nil
	}
	return err == nil, err
}

// adviceInUse does not name the reservations: they are on the nodes' disks alone.
const adviceInUse = "disable the pool, delete the pods there that use it, and end the reservations of its addresses, which porin ipam list shows on each of these nodes " +
	"and porin ipam release ends there: the nodes give the blocks back when nothing of them has been in use for a while"
