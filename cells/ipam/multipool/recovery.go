package multipool

import (
	"context"
	"time"
)

// recovery is this node's part in a recovery of the store.
type recovery struct {
	blocks     *ownBlocks
	history    *storeHistory
	session    *session
	reconciler *reconciler
	pools      *knownPools

	// reconciled is the last recovery in which [reconciler.reconcileUnknownBlocks] has run.
	reconciled string
}

// run returns [ErrRecovery] while the mark stands. It records in the session that the node has written its claims, in a
// later round if addresses are in use of blocks that other nodes own or could claim.
func (r *recovery) run(ctx context.Context) error {
	info := r.history.info
	if info.Recovery == nil {
		return nil
	}
	if r.session.current.HasWritten(info) {
		return ErrRecovery
	}
	if r.reconciled != info.Recovery.ID {
		if err := r.reconciler.reconcileUnknownBlocks(ctx); err != nil {
			return err
		}
		r.reconciled = info.Recovery.ID
	}
	if r.pools.complete && !r.blocks.hasUnownedBlocks() && !r.blocks.usesOverlappingBlock() {
		if err := r.session.recordWritten(ctx, info.Recovery.ID); err != nil {
			return err
		}
	}
	return ErrRecovery
}

// recoveryRequestTime is how long BeginRecovery waits for calls to the store that are under way.
const recoveryRequestTime = 20 * time.Second
