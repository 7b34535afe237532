package multipool_test

import (
	"context"
	"errors"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
)

// TestPoolDeleteInterrupted has an administrator's process end after it has marked the pool. Somebody deletes it again
// when a node has a block of it.
func TestPoolDeleteInterrupted(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		marked := false
		interrupted := clustertest.Intercept(b, func(ctx context.Context, what string, call func(context.Context) error) error {
			if marked {
				return cluster.ErrUnavailable
			}
			marked = what == "Pools.Update"
			return call(ctx)
		})
		if err := admin.NewPools(interrupted).Delete(t.Context(), "default"); !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatal(err)
		}
		block := cluster.Block{CIDR: prefixes("10.0.0.0/28")[0], Pool: "default", Owner: clustertest.NodeNamed("one").ID, Claim: "c"}
		if err := b.Blocks.Create(t.Context(), block); err != nil { // by a claim that was under way
			t.Fatal(err)
		}
		pools := admin.NewPools(b)
		if err := pools.Delete(t.Context(), "default"); !errors.Is(err, admin.ErrPoolInUse) {
			t.Errorf("error %v, want %v", err, admin.ErrPoolInUse)
		}
		if p, err := pools.Get(t.Context(), "default"); err != nil || p.State != cluster.PoolAccepted {
			t.Errorf("the pool that cannot be deleted is %q, want %q, error %v", p.State, cluster.PoolAccepted, err)
		}
	})
}

// TestPoolCreateListFails loses one list after a pool is pending: no record says that its addresses are another pool's.
func TestPoolCreateListFails(t *testing.T) {
	for _, list := range []string{"Pools.All", "Blocks.All"} {
		t.Run(list, func(t *testing.T) {
			b, created := strict(t), false
			failing := clustertest.Intercept(b, func(ctx context.Context, what string, call func(context.Context) error) error {
				created = created || what == "Pools.Create"
				if what == list && created {
					return cluster.ErrUnavailable
				}
				return call(ctx)
			})
			want := cluster.Pool{Name: "default", Prefixes: prefixes("10.0.0.0/24")}
			if _, err := admin.NewPools(failing).Put(t.Context(), want); !errors.Is(err, cluster.ErrUnavailable) {
				t.Fatal(err)
			}
			pending, err := b.Pools.Get(t.Context(), "default")
			if err != nil || pending.State != cluster.PoolPending || pending.Deleting {
				t.Fatalf("the pool is %+v, error %v; want it to be pending", pending, err)
			}
			p, err := admin.NewPools(b).Put(t.Context(), want)
			if err != nil || p.State != cluster.PoolAccepted || p.UID != pending.UID {
				t.Errorf("the next try gives %+v, error %v", p, err)
			}
		})
	}
}
