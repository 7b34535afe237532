package multipool_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// TestAgentRights: where an agent may not delete another node's block it never tries to, also when that node was
// deleted. An administrator deletes what is left of the node, and the agent claims the block.
func TestAgentRights(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		each(t, func(t *testing.T, b cluster.Backend) {
			restricted, deletions := b, &ownDeletions{Blocks: b.Blocks}
			restricted.Blocks, restricted.AgentRights = deletions, true
			w := newWorld(t, restricted)
			pool := w.pool("default", 28, "10.0.0.0/28") // one block
			other := cluster.NodeID{Name: "other", Key: cluster.NewKey()}
			theirs := cluster.Block{CIDR: pool.Prefixes[0], Pool: pool.Name, PoolUID: pool.UID, Owner: other, Claim: "theirs", Created: time.Now()}
			var one *machine
			if inUse {
				one = w.machine("one", 1)
				w.mustAllocate(one)
				if err := b.Blocks.Delete(t.Context(), theirs.CIDR, w.blocks()[0].Claim); err != nil {
					t.Fatal(err)
				}
			}
			w.wait("the block is theirs", func() bool { return b.Blocks.Create(t.Context(), theirs) == nil })
			if !inUse {
				one = w.machine("one", 1)
			}
			w.wait("the node is connected", func() bool { return one.controller.Status().Connected })
			id := one.controller.Status().Node
			deletions.of.Store(&id)
			w.wait("the other node is deleted", func() bool {
				r, _, err := b.Info.Get(t.Context())
				r.RecordRemovedNode(other)
				if err == nil {
					_, err = b.Info.Put(t.Context(), r)
				}
				return err == nil
			})
			w.wait("the block is in conflict, or unused", func() bool {
				_ = one.controller.Reconcile(t.Context())
				all := one.controller.Status().Blocks
				return !inUse && len(all) == 0 || inUse && len(all) == 1 && all[0].State == "conflict"
			})
			if addr, err := w.allocate(one, time.Second); err == nil {
				t.Errorf("%s of a block of another node is given out", addr)
			}
			if all := w.blocks(); len(all) != 1 || all[0].Claim != "theirs" {
				t.Errorf("blocks %+v, want the other node's", all)
			}
			if err := admin.NewNodes(b).Delete(t.Context(), other, false); err != nil {
				t.Error(err)
			}
			if inUse { // a recovery has begun when the node found that its claim was gone
				w.wait("the block is the node's again", func() bool { all := w.blocks(); return len(all) == 1 && all[0].Owner == id })
				w.endRecovery()
			}
			w.mustAllocate(one)
			if n := deletions.foreign.Load(); n > 0 {
				t.Errorf("the agent has tried %d times to delete a block of another node", n)
			}
		})
	}
}

// ownDeletions counts an agent's deletions of blocks that another node owns.
type ownDeletions struct {
	cluster.Blocks
	of      atomic.Pointer[cluster.NodeID]
	foreign atomic.Int64
}

func (d *ownDeletions) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	if b, err := d.Get(ctx, cidr); err == nil && d.of.Load() != nil && b.Owner != *d.of.Load() {
		d.foreign.Add(1)
	}
	return d.Blocks.Delete(ctx, cidr, claim)
}

// TestConflictWithMissingNode: a block in use belongs to another node whose record is missing. That node may run, so
// its claim stays until an administrator deletes the node.
func TestConflictWithMissingNode(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		pool := w.pool("default", 28, "10.0.0.0/28") // one block
		one := w.machine("one", 1)
		w.mustAllocate(one)
		other := cluster.NodeID{Name: "other", Key: cluster.NewKey()}
		theirs := w.blocks()[0]
		err := b.Blocks.Delete(t.Context(), theirs.CIDR, theirs.Claim)
		theirs.Owner, theirs.Claim, theirs.PoolUID = other, "theirs", pool.UID
		if err == nil {
			w.wait("the block is theirs", func() bool { return b.Blocks.Create(t.Context(), theirs) == nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		w.wait("it is a conflict", func() bool {
			_ = one.controller.Reconcile(t.Context())
			all := one.controller.Status().Blocks
			return len(all) == 1 && all[0].State == "conflict" && all[0].OtherOwner == other.String()
		})
		if got := conflictDetail(w, one); got != "node "+other.String()+" owns it" {
			t.Errorf("the doctor says %q", got)
		}
		if all := w.blocks(); len(all) != 1 || all[0].Claim != "theirs" {
			t.Errorf("blocks %+v", all)
		}
		w.wait("the other node is deleted", func() bool {
			r, _, err := b.Info.Get(t.Context())
			r.RecordRemovedNode(other)
			if err == nil {
				_, err = b.Info.Put(t.Context(), r)
			}
			return err == nil
		})
		w.wait("the block is one's", func() bool {
			all := w.blocks()
			return len(all) == 1 && all[0].Owner == one.controller.Status().Node
		})
	})
}
