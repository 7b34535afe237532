package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// compareBlocks makes the node's blocks what the store says. A block whose addresses are in use and that the store has lost is claimed
// again before anything else of it is given out; one that another node owns is a conflict.
func (c *Controller) compareBlocks(ctx context.Context) error {
	if c.compareUnknown {
		if err := c.compareUnknownBlocks(ctx); err != nil {
			return err
		}
	}
	for _, b := range slices.Clone(c.checkpoint.Blocks) {
		var err error
		switch b.State {
		case blockOwned, blockConflict, blockReclaiming:
			err = c.compareBlock(ctx, b)
		case blockClaiming: // its answer was lost
			err = c.resolveClaim(b)
		}
		if err != nil {
			return fmt.Errorf("compare block %s with the store: %w", b.CIDR, err)
		}
	}
	return nil
}

func (c *Controller) compareBlock(ctx context.Context, b ownBlock) error {
	now, err := c.backend.Blocks.Get(ctx, b.CIDR)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		c.addresses.Drain(b.Pool, b.CIDR)
		if c.addresses.used(b.Pool, b.CIDR) > 0 {
			return c.reclaim(ctx, b)
		}
		if err := c.blockLost(ctx, b); err != nil {
			return err
		}
		return c.dropBlock(b)
	case errors.Is(err, cluster.ErrUnreadable):
		c.addresses.Drain(b.Pool, b.CIDR)
		return c.conflict(b, "nobody: its record cannot be read")
	case err != nil:
		return err
	case now.Owner == c.checkpoint.Node && now.Claim == b.Claim && !now.Deleting:
		return c.owned(b)
	case now.Owner == c.checkpoint.Node:
		return c.compareUnknownClaim(ctx, b, now)
	}
	c.addresses.Drain(b.Pool, b.CIDR)
	if err := c.blockLost(ctx, b); err != nil {
		return err
	}
	if c.addresses.used(b.Pool, b.CIDR) == 0 {
		return c.dropBlock(b)
	}
	if _, err := c.backend.Nodes.Get(ctx, now.Owner); errors.Is(err, cluster.ErrNotFound) { // nobody else will delete it
		if err := c.backend.Blocks.Delete(ctx, now.CIDR, now.Claim); err != nil {
			return err
		}
		return c.reclaim(ctx, b)
	}
	return c.conflict(b, now.Owner.String())
}

// compareUnknownClaim is about a record in this node's name with a claim that the checkpoint does not have: of a creation or a deletion
// that came late. It is never adopted, because its deletion may be under way.
func (c *Controller) compareUnknownClaim(ctx context.Context, b ownBlock, now cluster.Block) error {
	c.addresses.Drain(b.Pool, b.CIDR)
	if err := c.backend.Blocks.Delete(ctx, now.CIDR, now.Claim); err != nil && !errors.Is(err, cluster.ErrConflict) {
		return err
	}
	if c.addresses.used(b.Pool, b.CIDR) == 0 {
		return c.dropBlock(b)
	}
	return c.reclaim(ctx, b)
}

// reclaim creates the record of a block whose addresses are in use.
func (c *Controller) reclaim(ctx context.Context, b ownBlock) error {
	if err := c.blockLost(ctx, b); err != nil {
		return err
	}
	b.Claim, b.State, b.Rival = rand.Text(), blockReclaiming, "" // nothing is given out until the creation has an answer
	c.checkpoint.set(b)
	if err := c.save(); err != nil {
		return err
	}
	err := c.backend.Blocks.Create(ctx, c.record(b))
	if errors.Is(err, cluster.ErrExists) {
		return c.compareAgain(ctx, b)
	}
	if err != nil {
		return err
	}
	c.log.Warn("a block that is in use was missing in the store, and was claimed again", "cidr", b.CIDR, "pool", b.Pool)
	return c.owned(b)
}

// owned notes that the store has the block under this node's claim, and gives out from it.
func (c *Controller) owned(b ownBlock) error {
	if b.State != blockOwned {
		b.State, b.Rival = blockOwned, ""
		c.checkpoint.set(b)
		if err := c.save(); err != nil {
			return err
		}
	}
	c.giveOut(b)
	return nil
}

// compareAgain finds out who was quicker to create a block.
func (c *Controller) compareAgain(ctx context.Context, b ownBlock) error {
	now, err := c.backend.Blocks.Get(ctx, b.CIDR)
	switch {
	case err != nil:
		return err
	case now.Owner == c.checkpoint.Node && now.Claim == b.Claim && !now.Deleting:
		return c.owned(b)
	case now.Deleting:
		return fmt.Errorf("block %s is being deleted: %w", b.CIDR, cluster.ErrUnavailable)
	}
	return c.conflict(b, now.Owner.String())
}

// conflict notes that another node owns a block whose addresses are in use here: nothing more of it is given out.
func (c *Controller) conflict(b ownBlock, rival string) error {
	if b.State == blockConflict && b.Rival == rival {
		return nil
	}
	c.log.Error("another node owns a block whose addresses are in use here; delete the pods that use them on one of the two nodes",
		"cidr", b.CIDR, "pool", b.Pool, "owner", rival)
	b.State, b.Rival = blockConflict, rival
	c.checkpoint.set(b)
	return c.save()
}

// compareUnknownBlocks looks for blocks in this node's name that the checkpoint does not have.
func (c *Controller) compareUnknownBlocks(ctx context.Context) error {
	for b, err := range c.backend.Blocks.All(ctx, cluster.BlockFilter{Owner: c.checkpoint.Node}) {
		if errors.Is(err, cluster.ErrUnreadable) {
			continue
		}
		if err == nil && !c.checkpoint.explains(b) {
			err = c.endUnknownBlock(ctx, b)
		}
		if err != nil {
			return fmt.Errorf("list the blocks of node %s: %w", c.checkpoint.Node, err)
		}
	}
	c.compareUnknown = false
	return nil
}

// endUnknownBlock deletes a claim in this node's name that the checkpoint does not have: of a creation that came late, or of a block that
// was given back after the backup from which the store was restored. A block whose addresses are in use is adopted: the checkpoint was lost,
// and a block in use has not been given back.
func (c *Controller) endUnknownBlock(ctx context.Context, b cluster.Block) error {
	if c.addresses.used(b.Pool, b.CIDR) > 0 && !b.Deleting {
		c.checkpoint.set(ownBlock{CIDR: b.CIDR, Pool: b.Pool, PoolUID: b.PoolUID, Claim: b.Claim, State: blockOwned})
		return c.save()
	}
	if err := c.backend.Blocks.Delete(ctx, b.CIDR, b.Claim); err != nil && !errors.Is(err, cluster.ErrConflict) {
		return fmt.Errorf("delete block %s, which node %s does not know: %w", b.CIDR, c.checkpoint.Node, err)
	}
	return nil
}

// dropBlock forgets a block that is not this node's and of which nothing is in use.
func (c *Controller) dropBlock(b ownBlock) error {
	if err := c.addresses.Remove(b.Pool, b.CIDR); err != nil {
		return nil //nolint:nilerr // something is in use by now: it is compared again
	}
	c.checkpoint.drop(b.CIDR)
	return c.save()
}

// resolveClaim ends a creation whose answer was lost: what it made is deleted. The block is remembered as released until the store says
// that there is no such claim.
func (c *Controller) resolveClaim(b ownBlock) error {
	b.State, b.Checks = blockReleased, lateChecks
	c.checkpoint.set(b)
	return c.save()
}

// record is the block as the store has it.
func (c *Controller) record(b ownBlock) cluster.Block {
	return cluster.Block{CIDR: b.CIDR, Pool: b.Pool, PoolUID: b.PoolUID, Owner: c.checkpoint.Node, Claim: b.Claim, Created: time.Now().UTC().Truncate(time.Second)}
}
