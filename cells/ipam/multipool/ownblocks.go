package multipool

import (
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// blockState is what the node knows of a block that it has claimed.
type blockState string

const (
	blockClaiming blockState = "claiming" // the creation was sent; it is never adopted without an answer
	blockOwned    blockState = "owned"
	blockReleased blockState = "released" // nothing of it is given out any more; it is to be deleted in the store
	blockConflict blockState = "conflict" // another node owns it, and addresses of it are in use here
	// blockReclaiming is the state of a block with addresses in use that this node does not own yet, as after its
	// folder was lost, or that a former incarnation has claimed.
	blockReclaiming blockState = "reclaiming"
)

// notOwned reports whether addresses of the block are in use here although this node does not own it: nothing of it is
// given out.
func (s blockState) notOwned() bool { return s == blockConflict || s == blockReclaiming }

// OwnBlock is a block of the node in the checkpoint.
type OwnBlock struct {
	CIDR       netip.Prefix `json:"cidr"`
	Pool       string       `json:"pool"`
	PoolUID    string       `json:"poolUID"`
	Claim      string       `json:"claim"`
	State      blockState   `json:"state"`
	OtherOwner string       `json:"otherOwner,omitempty"` // of a conflict: the node that owns the block
	// Checks is how often a released block is to be deleted again: its creation had no answer, and may yet arrive.
	Checks int `json:"checks,omitempty"`

	nextDeletion time.Duration // of a released block; 0 for at once
}

// blockRecord returns the record that claims the block.
func blockRecord(owner cluster.NodeID, b OwnBlock) cluster.Block {
	return cluster.Block{CIDR: b.CIDR, Pool: b.Pool, PoolUID: b.PoolUID, Owner: owner, Claim: b.Claim, Created: time.Now().UTC().Truncate(time.Second)}
}

// ownBlocks are the blocks of the checkpoint, and what the allocator gives out of them. It does not ask the store.
type ownBlocks struct{ *common }

// resume gives the blocks of the checkpoint to the allocator before the store has answered. After a boot of the machine
// no address of them is given out yet, as an administrator may have deleted the node meanwhile. The same holds when its
// Kubernetes Node is gone.
func (o *ownBlocks) resume() {
	for _, b := range o.checkpoint.Blocks {
		if b.State != blockOwned && !b.State.notOwned() {
			continue
		}
		if err := o.addresses.Add(b.Pool, b.CIDR); err != nil {
			o.log.Warn("a block of the checkpoint cannot be used", "cidr", b.CIDR, "error", err)
		}
		if o.checkpoint.rebooted || b.State.notOwned() || !o.pools.hasBlock(b) || o.kubernetes.gone() {
			o.drain(b)
		}
	}
}

// drain stops giving out addresses of the block. Those in use stay.
func (o *ownBlocks) drain(b OwnBlock) { o.addresses.Drain(b.Pool, b.CIDR) }

// drainAll stops giving out addresses until the blocks were reconciled with the store.
func (o *ownBlocks) drainAll() {
	for _, b := range o.checkpoint.Blocks {
		o.drain(b)
	}
}

// enableAll gives out addresses of the owned blocks as their pools are now.
func (o *ownBlocks) enableAll() {
	for _, b := range o.checkpoint.Blocks {
		if b.State == blockOwned {
			o.enable(b)
		}
	}
}

// enable gives out addresses of the block, unless the Kubernetes Node is gone, or the block's pool does not have it
// any more: then it is given back when it is empty.
func (o *ownBlocks) enable(b OwnBlock) {
	if o.pools.obsolete(b) || o.kubernetes.gone() {
		o.drain(b)
	} else if err := o.addresses.Add(b.Pool, b.CIDR); err != nil {
		o.warnings.record(err, "addresses of an own block cannot be given out")
	}
}

// used reports whether addresses of the block are in use, reserved or in quarantine.
func (o *ownBlocks) used(b OwnBlock) bool { return o.addresses.used(b.Pool, b.CIDR) > 0 }

// setOwned notes that the store has this node's claim of the block, and gives out its addresses.
func (o *ownBlocks) setOwned(b OwnBlock) error {
	if b.State != blockOwned {
		b.State, b.OtherOwner = blockOwned, ""
		if err := o.checkpoint.put(b); err != nil {
			return err
		}
	}
	o.enable(b)
	return nil
}

// setConflict notes that another node owns the block, whose addresses are in use here.
func (o *ownBlocks) setConflict(b OwnBlock, otherOwner string) error {
	if b.State == blockConflict && b.OtherOwner == otherOwner {
		return nil
	}
	o.log.Error("another node owns a block whose addresses are in use here; delete the pods that use them on one of the two nodes",
		"cidr", b.CIDR, "pool", b.Pool, "owner", otherOwner)
	b.State, b.OtherOwner = blockConflict, otherOwner
	return o.checkpoint.put(b)
}

// release stops giving out addresses of the block, and has it deleted in the store by [releaser.deleteReleased]. When
// an address is in use by now, the block stays, and that is no error.
func (o *ownBlocks) release(pool string, cidr netip.Prefix) error {
	if err := o.addresses.Remove(pool, cidr); err != nil {
		return nil //nolint:nilerr // in use: it stays
	}
	b := o.checkpoint.block(cidr)
	if b == nil {
		return nil
	}
	was := b.State
	b.State = blockReleased
	if err := o.checkpoint.save(); err != nil { // the next agent would give out its addresses
		b.State = was
		return errors.Join(err, o.addresses.Add(pool, cidr))
	}
	o.log.Info("block given back", "pool", pool, "cidr", cidr)
	return nil
}

// remove removes a block that this node does not own and that has no address in use.
func (o *ownBlocks) remove(b OwnBlock) error {
	if err := o.addresses.Remove(b.Pool, b.CIDR); err != nil {
		return nil //nolint:nilerr // something is in use by now: it is reconciled again
	}
	o.checkpoint.remove(b.CIDR)
	return o.checkpoint.save()
}

// releaseAfterBoot releases the owned blocks after a boot. Nothing of them is in use, and a store that was rolled back
// may have a claim that was over, while another node uses the block. A block with a reservation is claimed again.
func (o *ownBlocks) releaseAfterBoot(why string) error {
	if !o.checkpoint.rebooted {
		return nil
	}
	for i, b := range o.checkpoint.Blocks {
		if b.State != blockOwned {
			continue
		}
		if o.addresses.Remove(b.Pool, b.CIDR) == nil {
			o.checkpoint.Blocks[i].State = blockReleased
		} else {
			o.checkpoint.Blocks[i].State, o.checkpoint.Blocks[i].Claim = blockReclaiming, rand.Text()
		}
	}
	o.log.Info("the node gives back the blocks that it had before the boot", "reason", why)
	return o.checkpoint.save()
}

// resetOwnership is for a new incarnation of the node: it must claim the blocks with addresses in use itself.
func (o *ownBlocks) resetOwnership() {
	for i, b := range o.checkpoint.Blocks {
		o.drain(b)
		if b.State != blockReleased { // the former incarnation's claim may be about to be deleted
			o.checkpoint.Blocks[i].Claim = rand.Text()
		}
		if b.State == blockOwned {
			o.checkpoint.Blocks[i].State = blockReclaiming
		}
	}
}

// hasUnownedBlocks reports whether addresses are in use here of blocks that this node does not own.
func (o *ownBlocks) hasUnownedBlocks() bool {
	return slices.ContainsFunc(o.checkpoint.Blocks, func(b OwnBlock) bool { return b.State.notOwned() })
}

// otherOwners lists the nodes that own blocks with addresses in use here.
func (o *ownBlocks) otherOwners() (owners []string) {
	for _, b := range o.checkpoint.Blocks {
		if b.OtherOwner != "" && !slices.Contains(owners, b.OtherOwner) {
			owners = append(owners, b.OtherOwner)
		}
	}
	slices.Sort(owners)
	return owners
}

// usesOverlappingBlock reports whether addresses are in use of an own block that overlaps blocks of a pool: other nodes
// could claim those.
func (o *ownBlocks) usesOverlappingBlock() bool {
	return slices.ContainsFunc(o.checkpoint.Blocks, func(b OwnBlock) bool {
		return b.State == blockOwned && o.pools.overlap(b.CIDR) && o.used(b)
	})
}
