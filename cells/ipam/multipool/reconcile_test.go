package multipool_test

import (
	"testing"

	"porin.dev/porin/cells/cluster"
)

// TestConflictWithMissingNode has a block in use be another node's whose record is missing: that node may run, so its
// claim stays until somebody has deleted the node.
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
