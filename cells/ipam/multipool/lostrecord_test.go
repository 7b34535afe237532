package multipool_test

import (
	"context"
	"testing"

	"porin.dev/porin/cells/cluster"
)

// TestSessionDeleted deletes what the store knows of a healthy node's agent: its blocks stay.
func TestSessionDeleted(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id, before := one.controller.Status().Node, w.blocks()
		if err := w.backend.Sessions.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.wait("the session is there again", func() bool {
			s, err := w.backend.Sessions.Get(context.Background(), id)
			return err == nil && !s.Deleting
		})
		if after := w.blocks(); len(after) != 1 || after[0] != before[0] {
			t.Errorf("blocks %+v, before %+v", after, before)
		}
		w.mustAllocate(one)
	})
}

// TestNodeRecordLost deletes the record of a node with blocks behind its agent's back: the agent
// notices, and no other node claims its block.
func TestNodeRecordLost(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		id := one.controller.Status().Node
		n, err := w.backend.Nodes.Get(t.Context(), id)
		if err == nil {
			err = w.backend.Nodes.Delete(t.Context(), n)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.wait("the record is there again", func() bool {
			n, err := w.backend.Nodes.Get(context.Background(), id)
			return err == nil && !n.Deleting
		})
		w.endRecovery()
		w.mustAllocate(one)
	})
}
