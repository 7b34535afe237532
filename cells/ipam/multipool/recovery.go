package multipool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/diskfile"
)

// recoveryID identifies a recovery. Its epoch alone does not: after another restore the same one may begin a second time.
type recoveryID struct {
	cluster  string
	epoch    uint64
	recovery string // [cluster.Recovery].ID; "" when it is over
}

func recoveryOf(info cluster.ClusterInfo) recoveryID {
	id := recoveryID{cluster: info.ID, epoch: info.Epoch}
	if info.Recovery != nil {
		id.recovery = info.Recovery.ID
	}
	return id
}

// recovery is this node's part in a recovery of the store.
type recovery struct {
	cfg        Config
	backend    cluster.Backend
	checkpoint *checkpoint
	blocks     *ownBlocks
	history    *storeHistory
	session    *session
	reconciler *reconciler
	pools      *knownPools
	nodes      *otherNodes
	clock      func() time.Duration
	rng        *rand.Rand
	log        *slog.Logger

	nextCheck time.Duration // when to look again whether the recovery can end
	// reconciled is the last recovery in which [reconciler.reconcileUnknownBlocks] has run.
	reconciled recoveryID
}

// run confirms the blocks of this node in a recovery, and ends it when every node has confirmed its own.
func (r *recovery) run(ctx context.Context) error {
	if !r.session.hasConfirmed(r.history.info) {
		if err := r.confirm(ctx); err != nil {
			return err
		}
	}
	if r.history.info.Recovery == nil {
		return nil
	}
	if r.clock() < r.nextCheck {
		return ErrRecovery
	}
	return r.end(ctx)
}

// confirm confirms the blocks of this node, in a later round if addresses are in use of blocks that other nodes own or
// could claim.
func (r *recovery) confirm(ctx context.Context) error {
	info := r.history.info
	if at := recoveryOf(info); r.reconciled != at {
		if err := r.reconciler.reconcileUnknownBlocks(ctx); err != nil {
			return err
		}
		r.reconciled = at
	}
	if r.pools.complete && !r.blocks.hasUnownedBlocks() && !r.blocks.usesOverlappingBlock() {
		return r.session.confirm(ctx, info)
	}
	return nil
}

// end ends the recovery, or returns [ErrRecovery] with the nodes that it waits for.
func (r *recovery) end(ctx context.Context) error {
	info := r.history.info
	// All nodes together look at most about twenty times a second.
	r.nextCheck = r.clock() + r.cfg.SearchTime/2 + time.Duration(r.rng.Int64N(int64(r.cfg.SearchTime)+int64(len(r.nodes.byName))*int64(r.cfg.SearchTime/10)))
	now, _, err := r.backend.Info.Get(ctx) // an administrator may have excluded nodes
	if err != nil {
		return err
	}
	if recoveryOf(now) != recoveryOf(info) {
		r.session.reconnect()
		return ErrRecovery
	}
	info, r.history.info = now, now
	waiting, err := cluster.UnconfirmedNodes(ctx, r.backend, info)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		more := ""
		if n := len(waiting) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return fmt.Errorf("%w: it waits for node %s%s", ErrRecovery, waiting[0].Node, more)
	}
	info.Recovery = nil
	if info, err = r.backend.Info.Put(ctx, info); err != nil {
		r.session.reconnect()
		return fmt.Errorf("end the recovery: %w", err)
	}
	r.log.Info("the recovery of the cluster's store is over: every node has confirmed its blocks", "epoch", info.Epoch)
	r.history.info = info
	return nil
}

// recoveryRequestFile in Config.Dir makes the agent begin a recovery at its next contact with the store, before anything else.
// [Controller.BeginRecovery] writes it. Where no agent runs, people may write it.
const recoveryRequestFile = "begin-recovery"

// recoveryRequestTime is how long BeginRecovery waits for calls to the store that are under way.
const recoveryRequestTime = 20 * time.Second

// recoveryRequest is the file recoveryRequestFile. It is safe for concurrent use.
type recoveryRequest struct {
	dir string
	log *slog.Logger
	// fulfilled is the last request that this agent has fulfilled, in case that the file cannot be removed.
	fulfilled atomic.Pointer[fs.FileInfo]
}

func (r *recoveryRequest) path() string { return filepath.Join(r.dir, recoveryRequestFile) }

func (r *recoveryRequest) write() error { return diskfile.Replace(r.path(), nil) }

// isPending reports whether a recovery is requested that this agent has not begun.
func (r *recoveryRequest) isPending() (bool, error) {
	request, err := r.pending()
	return request != nil, err
}

// pending returns the file if isPending, else nil.
func (r *recoveryRequest) pending() (fs.FileInfo, error) {
	request, err := os.Stat(r.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look whether a recovery is requested: %w", err)
	}
	if done := r.fulfilled.Load(); done != nil && os.SameFile(*done, request) && (*done).ModTime().Equal(request.ModTime()) {
		return nil, nil
	}
	return request, nil
}

// done removes the file after the recovery has begun. One that cannot be removed is a request for the next start of the
// agent only.
func (r *recoveryRequest) done(request fs.FileInfo) {
	r.fulfilled.Store(&request)
	err := os.Remove(r.path())
	if err == nil {
		err = diskfile.SyncDir(r.dir)
	}
	if err != nil {
		r.log.Warn("the requested recovery has begun, but the request cannot be removed: remove the file, or the next start of the agent begins another recovery",
			"path", r.path(), "error", err)
	}
}
