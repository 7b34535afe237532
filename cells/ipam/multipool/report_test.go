package multipool_test

import (
	"slices"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam/multipool"
)

// reported is what the agent of a machine says in porin status.
func reported(m *machine) (status v1.Status) {
	multipool.NewReporter(m.controller).Report(&status)
	return status
}

// conflictDetail is what the doctor of a machine says of its conflict.
func conflictDetail(w *world, m *machine) string {
	w.Helper()
	found, err := multipool.NewChecker(w.backend, m.controller).Examine(w.Context(), "")
	i := slices.IndexFunc(found, func(f doctor.Finding) bool { return f.Kind == "block-conflict" })
	if err != nil || i < 0 {
		w.Fatalf("found %+v, error %v, want a conflict", found, err)
	}
	return found[i].Detail
}

// TestStatusInRecovery has a node that lacks no address.
func TestStatusInRecovery(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	w.wait("both are connected", func() bool { return one.controller.Status().Connected && two.controller.Status().Connected })
	if got := reported(one); got.Recovery != nil || len(got.Conflicts) > 0 {
		t.Errorf("before: %+v, conflicts %+v", got.Recovery, got.Conflicts)
	}
	w.beginRecovery()
	w.wait("it tells that it has written its blocks", func() bool {
		got := reported(one).Recovery
		return got != nil && got.UnderWay && !got.Began.IsZero() && got.Reason != "" && !got.Unwritten
	})
	w.endRecovery()
	w.wait("it tells of none when the recovery is over", func() bool { return reported(one).Recovery == nil })
}

// TestStatusConflict has a machine use addresses of a block that the node has which it was before.
func TestStatusConflict(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	one := w.machine("one", 1)
	addr := w.mustAllocate(one)
	former := w.loseFolder(one)
	w.wait("it tells of the conflict", func() bool {
		all := reported(one).Conflicts
		return len(all) == 1 && all[0].CIDR.Contains(addr) && all[0].Pool == "default" && all[0].Owner == former.String()
	})
	if got, want := conflictDetail(w, one), "node "+former.String()+" owns it, another incarnation of this node: it may be this machine before it lost its --store-dir; "+
		"delete the pods that use the block, or run porin ipam recover --begin and then porin node delete one --incarnation "+former.Key+" --machine-is-off"; got != want {
		t.Errorf("the doctor says %q, want %q", got, want)
	}
	w.beginRecovery()
	w.wait("it tells that it has not written its blocks", func() bool { got := reported(one).Recovery; return got != nil && got.Unwritten })
}

// TestStatusUnreadableBlock: the record of a block cannot be read.
func TestStatusUnreadableBlock(t *testing.T) {
	store := embeddedtest.Open(t, t.TempDir())
	w := newWorld(t, store.Backend())
	w.pool("default", 28, "10.0.0.0/28") // one block
	one := w.machine("one", 1)
	w.mustAllocate(one)
	b := w.blocks()[0]
	if err := w.backend.Blocks.Delete(t.Context(), b.CIDR, b.Claim); err != nil {
		t.Fatal(err)
	}
	embeddedtest.Write(t, store, "blocks/10-0-0-0-28", unreadable)
	w.wait("it tells of the conflict, without an owner", func() bool {
		_ = one.controller.Reconcile(t.Context())
		all := reported(one).Conflicts
		return len(all) == 1 && all[0].CIDR == b.CIDR && all[0].Owner == ""
	})
	if got := conflictDetail(w, one); got != "its record in the store cannot be read" {
		t.Errorf("the doctor says %q", got)
	}
}
