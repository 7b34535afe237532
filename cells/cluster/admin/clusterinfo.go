package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// The errors of [EndRecovery].
var (
	ErrNoRecovery = fault.New(fault.Conflict, "no recovery is under way")
	// ErrUnwritten is returned while nodes have not written their claims.
	ErrUnwritten = fault.New(fault.Conflict, "nodes have not written their blocks since the recovery began, so others could get addresses that are in use there: "+
		"wait for them, or delete nodes that are gone with porin node delete; --force ends the recovery all the same")
)

// EndRecovery removes the mark of a recovery. If nodes have not written their claims it returns [ErrUnwritten] with
// their names, unless force is set.
func EndRecovery(ctx context.Context, b cluster.Backend, force bool) error {
	info, _, err := b.Info.Get(ctx)
	if err != nil {
		return err
	}
	if info.Recovery == nil {
		return ErrNoRecovery
	}
	recovery := info.Recovery.ID
	unwritten, err := cluster.UnwrittenNodes(ctx, b, info)
	if err != nil {
		return err
	}
	if len(unwritten) > 0 && !force {
		var names []string
		for _, n := range unwritten {
			names = append(names, n.Node.String())
		}
		return fmt.Errorf("%w: %s", ErrUnwritten, strings.Join(names, ", "))
	}
	return changeInfo(ctx, b.Info, func(info *cluster.ClusterInfo) error {
		if info.Recovery == nil || info.Recovery.ID != recovery { // a later one has begun
			return ErrRestored
		}
		info.EndRecovery()
		return nil
	})
}
