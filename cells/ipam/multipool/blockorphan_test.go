package multipool_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
)

// lateClaim deletes a node while it claims a block. The block's record arrives afterwards. It returns the node.
func (w *world) lateClaim() cluster.NodeID {
	w.Helper()
	plain := w.backend
	sent, deleted, arrived := make(chan struct{}), make(chan struct{}), make(chan error)
	w.backend = clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what != "Blocks.Create" {
			return call(ctx)
		}
		close(sent)
		go func() {
			<-deleted
			arrived <- call(context.WithoutCancel(ctx))
		}()
		return cluster.ErrUnavailable
	})
	one := w.machine("one", 1)
	w.backend = plain
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	go func() { _, _ = w.allocate(one, time.Second) }()
	<-sent
	w.stop(one) // the machine loses its power
	id := one.controller.Status().Node
	err := w.nodeAdmin().Delete(w.Context(), id, true)
	close(deleted)
	if err := errors.Join(err, <-arrived); err != nil {
		w.Fatal(err)
	}
	w.wait("the record is gone", func() bool {
		_, err := w.backend.Nodes.Get(w.Context(), id)
		return errors.Is(err, cluster.ErrNotFound)
	})
	return id
}

// TestBlockOrphan deletes a block whose node was deleted before: with the node, or with the pool.
func TestBlockOrphan(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		for _, with := range []string{"node", "pool"} {
			w := newWorld(t, b)
			w.cfg.PreAllocate = 0
			w.pool("default", 28, "10.0.0.0/24")
			two := w.machine("two", 2)
			w.wait("two is connected", func() bool { return two.controller.Status().Connected })
			id := w.lateClaim()
			findings, err := multipool.NewChecker(b, two.controller).Examine(t.Context(), "")
			if err != nil || len(findings) != 1 || findings[0].Kind != "block-orphan" || !strings.HasSuffix(findings[0].Detail, "porin node delete one --incarnation "+id.Key) {
				t.Errorf("findings %+v, error %v", findings, err)
			}
			if with == "node" {
				found, err := w.nodeAdmin().Find(t.Context(), "one", id.Key)
				if err == nil {
					err = w.nodeAdmin().Delete(t.Context(), found.ID, false)
				}
				if err != nil {
					t.Error(err)
				}
				w.wait("the block is gone", func() bool { return len(w.blocks()) == 0 })
			}
			w.stop(two)
			if err := admin.NewPools(b).Delete(t.Context(), "default"); err != nil {
				t.Errorf("delete the pool with the %s: %v", with, err)
			}
			w.wait("pool and block are gone", func() bool {
				_, err := b.Pools.Get(t.Context(), "default")
				return errors.Is(err, cluster.ErrNotFound) && len(w.blocks()) == 0
			})
		}
	})
}
