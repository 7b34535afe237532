package admin

import (
	"context"
	"errors"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// changeInfo changes the record of the cluster from what it is at that very moment.
func changeInfo(ctx context.Context, store cluster.Info, change func(*cluster.ClusterInfo) error) error {
	for {
		info, _, err := store.Get(ctx)
		if err == nil {
			if err = change(&info); err == nil {
				_, err = store.Put(ctx, info)
			}
		}
		if !errors.Is(err, cluster.ErrConflict) || fault.KindOf(err) == fault.Internal {
			return err
		}
	}
}

// Exclude has the recovery not wait for a node. Addresses that are in use there may be given out a second time.
func (a *Nodes) Exclude(ctx context.Context, id cluster.NodeID) error {
	return changeInfo(ctx, a.backend.Info, func(info *cluster.ClusterInfo) error {
		if info.Recovery == nil {
			return fault.New(fault.Conflict, "no recovery is under way")
		}
		if recovery := *info.Recovery; !slices.Contains(recovery.Excluded, id.String()) {
			recovery.Excluded = append(slices.Clone(recovery.Excluded), id.String())
			info.Recovery = &recovery // what was read is not changed: others may have it
		}
		return nil
	})
}
