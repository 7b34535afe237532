package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// reconciler makes this node's blocks agree with the store, and finds the blocks of addresses in use that the node does
// not have.
type reconciler struct {
	*common

	unknownDue bool // reconcileUnknownBlocks is to run
}

// reconcileBlocks makes the blocks of the checkpoint agree with the store. A claim that the store has lost is created
// again, with its ID, before anything else of the block is given out; a block that another node owns is a conflict if
// addresses of it are in use.
func (r *reconciler) reconcileBlocks(ctx context.Context) error {
	if r.unknownDue {
		if err := r.reconcileUnknownBlocks(ctx); err != nil {
			return err
		}
	}
	confirmed, err := r.confirmedClaims(ctx)
	if err != nil {
		return err
	}
	for _, b := range slices.Clone(r.checkpoint.Blocks) {
		var err error
		switch b.State {
		case blockOwned, blockConflict, blockReclaiming:
			if confirmed[b.Claim] {
				err = r.blocks.setOwned(b)
				break
			}
			err = r.reconcileBlock(ctx, b)
		case blockClaiming: // its answer was lost
			b.State, b.Checks = blockReleased, lateChecks // it may arrive late: its deletion is repeated
			err = r.checkpoint.put(b)
		}
		if err != nil {
			return fmt.Errorf("reconcile block %s with the store: %w", b.CIDR, err)
		}
	}
	return nil
}

// confirmedClaims lists the claims of this node's blocks, if that is cheaper than to read each.
func (r *reconciler) confirmedClaims(ctx context.Context) (map[string]bool, error) {
	confirmed := map[string]bool{}
	if !r.backend.ListsByOwner || len(r.checkpoint.Blocks) < 2 {
		return confirmed, nil
	}
	for b, err := range cluster.Readable(r.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: r.checkpoint.Node})) {
		if err != nil {
			return nil, fmt.Errorf("list the blocks of node %s: %w", r.checkpoint.Node, err)
		}
		confirmed[b.Claim] = !b.Deleting
	}
	return confirmed, nil
}

// reconcileBlock is reconcileBlocks for one block.
func (r *reconciler) reconcileBlock(ctx context.Context, b OwnBlock) error {
	now, err := r.backend.Blocks.Get(ctx, b.CIDR)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return r.createAgain(ctx, b)
	case errors.Is(err, cluster.ErrUnreadable):
		r.blocks.drain(b)
		return r.blocks.setConflict(b, "nobody: its record cannot be read")
	case err != nil:
		return err
	case now.Owner == r.checkpoint.Node && now.Claim == b.Claim && !now.Deleting:
		return r.blocks.setOwned(b)
	}
	r.blocks.drain(b)
	if now.Owner == r.checkpoint.Node { // created or deleted late; it is not adopted, as its deletion may be under way
		if err := r.backend.Blocks.Delete(ctx, now.CIDR, now.Claim); err != nil && !errors.Is(err, cluster.ErrConflict) {
			return err
		}
		return r.createAgain(ctx, b)
	}
	if err := r.reportLostBlock(ctx, b); err != nil {
		return err
	}
	if !r.blocks.used(b) {
		return r.blocks.remove(b)
	}
	if r.backend.AgentRights { // an administrator has to delete what is left of the other node
		return r.blocks.setConflict(b, now.Owner.String())
	}
	if deleted, err := cluster.NodeDeleted(ctx, r.backend, now.Owner); err != nil || !deleted {
		return errors.Join(err, r.blocks.setConflict(b, now.Owner.String()))
	}
	if err := r.backend.Blocks.Delete(ctx, now.CIDR, now.Claim); err != nil { // no other node deletes it
		return err
	}
	return r.createAgain(ctx, b)
}

// reportLostBlock sets the mark of a recovery because a claim of this node is gone. Blocks in other states may have no
// claim.
func (r *reconciler) reportLostBlock(ctx context.Context, b OwnBlock) error {
	if b.State != blockOwned || r.history.info.Recovery != nil {
		return nil
	}
	return r.history.reportLost(ctx, "block "+b.CIDR.String()+" of node "+r.checkpoint.Node.String()+" is gone")
}

// createAgain creates a claim that the store lacks, with the same ID. An unused block is created again only if the node
// owned it and its pool still has it.
func (r *reconciler) createAgain(ctx context.Context, b OwnBlock) error {
	r.blocks.drain(b)
	if err := r.reportLostBlock(ctx, b); err != nil {
		return err
	}
	if !r.blocks.used(b) && (b.State != blockOwned || r.pools.obsolete(b)) {
		return r.blocks.remove(b)
	}
	if b.State != blockOwned {
		b.State, b.OtherOwner = blockReclaiming, "" // nothing is given out until the creation has an answer
		if err := r.checkpoint.put(b); err != nil {
			return err
		}
	}
	err := r.backend.Blocks.Create(ctx, blockRecord(r.checkpoint.Node, b))
	if errors.Is(err, cluster.ErrExists) { // another node was quicker, or a deletion is under way
		return fmt.Errorf("block %s is claimed or deleted at this moment: %w", b.CIDR, cluster.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	r.log.Warn("a claim that was missing in the store was created again", "cidr", b.CIDR, "pool", b.Pool)
	return r.blocks.setOwned(b)
}

// reconcileUnknownBlocks looks for blocks in this node's name that the checkpoint does not have.
func (r *reconciler) reconcileUnknownBlocks(ctx context.Context) error {
	for b, err := range r.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: r.checkpoint.Node}) {
		if errors.Is(err, cluster.ErrUnreadable) {
			continue
		}
		if err == nil && !r.checkpoint.explains(b) {
			err = r.resolveUnknownBlock(ctx, b)
		}
		if err != nil {
			return fmt.Errorf("list the blocks of node %s: %w", r.checkpoint.Node, err)
		}
	}
	r.unknownDue = false
	return nil
}

// resolveUnknownBlock deletes a claim in this node's name that the checkpoint does not have: its creation came late, or
// the block was given back after the backup from which the store was restored. A block whose addresses are in use is
// adopted: the checkpoint was lost, as a block in use is never given back.
func (r *reconciler) resolveUnknownBlock(ctx context.Context, b cluster.Block) error {
	if r.addresses.used(b.Pool, b.CIDR) > 0 && !b.Deleting {
		return r.checkpoint.put(OwnBlock{CIDR: b.CIDR, Pool: b.Pool, PoolUID: b.PoolUID, Claim: b.Claim, State: blockOwned})
	}
	if err := r.backend.Blocks.Delete(ctx, b.CIDR, b.Claim); err != nil && !errors.Is(err, cluster.ErrConflict) {
		return fmt.Errorf("delete block %s, which node %s does not know: %w", b.CIDR, r.checkpoint.Node, err)
	}
	return nil
}

// reconcileAddresses finds addresses in use that lie in no block of this node, as after the agent's folder was lost.
// Their blocks are claimed, or in conflict.
func (r *reconciler) reconcileAddresses(ctx context.Context) error {
	for _, addr := range r.addresses.inUse() {
		pool, cidr, ok := r.pools.blockOf(addr)
		if !ok || r.checkpoint.block(cidr) != nil { // an own block of another size does not keep others from claiming this one
			continue
		}
		b := OwnBlock{CIDR: cidr, Pool: pool.Name, PoolUID: pool.UID, Claim: rand.Text(), State: blockReclaiming}
		r.log.Warn("addresses are in use of a block that this node does not have", "address", addr, "cidr", cidr, "pool", pool.Name)
		if err := r.checkpoint.put(b); err != nil {
			r.checkpoint.remove(cidr)
			return err
		}
		if err := r.reconcileBlock(ctx, b); err != nil {
			return fmt.Errorf("reconcile block %s with the store: %w", cidr, err)
		}
	}
	return nil
}

// findOtherOwners lists the nodes that own blocks with addresses in use here, for the first session of a node. Without
// it one of them could be deleted before reconcileAddresses has found it.
func (r *reconciler) findOtherOwners(ctx context.Context) (owners []string, err error) {
	if err := r.pools.read(ctx, r.backend.Pools); err != nil {
		return nil, err
	}
	looked := map[netip.Prefix]bool{}
	for _, addr := range r.addresses.inUse() {
		_, cidr, ok := r.pools.blockOf(addr)
		if !ok || looked[cidr] {
			continue
		}
		looked[cidr] = true
		b, err := r.backend.Blocks.Get(ctx, cidr)
		switch {
		case errors.Is(err, cluster.ErrNotFound), errors.Is(err, cluster.ErrUnreadable):
		case err != nil:
			return nil, fmt.Errorf("read the blocks whose addresses are in use: %w", err)
		case b.Owner != r.checkpoint.Node && !slices.Contains(owners, b.Owner.String()):
			owners = append(owners, b.Owner.String())
		}
	}
	slices.Sort(owners)
	return owners, nil
}
