package multipool_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/testutil"
)

// put changes the pool as an administrator does.
func (w *world) put(p cluster.Pool) cluster.Pool {
	w.Helper()
	p.Version = ""
	p, err := admin.NewPools(w.backend).Put(w.Context(), p)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// lose has the store lose a pool, or all changes since it was like this.
func (w *world) lose(name string, since *cluster.Pool) {
	w.Helper()
	w.wait("the store has lost it", func() bool {
		now, err := w.backend.Pools.Get(w.Context(), name)
		if since == nil {
			if errors.Is(err, cluster.ErrNotFound) {
				return true
			}
			_ = w.backend.Pools.Delete(w.Context(), now)
			return false
		}
		p := *since
		p.Version = now.Version
		_, err = w.backend.Pools.Update(w.Context(), p)
		return err == nil
	})
}

func (w *world) epoch() uint64 {
	w.Helper()
	r, _, err := w.backend.Info.Get(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return r.Epoch
}

// lostPools are those that the machine's agent tells of.
func (w *world) lostPools(m *machine) []v1.LostPool {
	w.Helper()
	return callOf[v1.Recovery](w.T, w.backend, m.controller, http.StatusOK, http.MethodGet, "/v1/recovery", nil).LostPools
}

func (w *world) waitForLostPools(m *machine, want ...v1.LostPool) {
	w.Helper()
	var got []v1.LostPool
	w.wait("the agent tells of pools that the store has lost", func() bool { got = w.lostPools(m); return len(got) == len(want) })
	if !slices.Equal(got, want) {
		w.Errorf("pools that the store has lost: %+v, want %+v", got, want)
	}
}

func (w *world) waitUntilRecovered(epoch uint64) {
	w.Helper()
	testutil.Eventually(w.T, func() error {
		r, _, err := w.backend.Info.Get(w.Context())
		if err == nil && (r.Recovery != nil || r.Epoch != epoch) {
			err = fmt.Errorf("wait until recovery %d is over: %+v", epoch, r)
		}
		return err
	})
}

// TestPoolChangeLost has the store lose a change of a pool, while the agent runs and while it does not.
func TestPoolChangeLost(t *testing.T) {
	for name, down := range map[string]bool{"agent runs": false, "agent is down": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, strict(t))
			w.pool("default", 28, "10.0.0.0/24")
			before := w.pool("blue", 28, "10.1.0.0/24")
			one := w.machine("one", 1)
			after := before
			after.Exclude, after.Quarantine, after.AllowedNamespaces = prefixes("10.1.0.0/28"), time.Minute, []string{"shop", "bank"}
			after = w.put(after)
			w.wait("the node has seen the change", func() bool { return multipool.Seen(one.controller, "blue").Generation == after.Generation })
			if down {
				w.stop(one)
			}
			w.lose("blue", &before)
			if down {
				w.start(one)
			}
			const command = "porin pool set blue --exclude=10.1.0.0/28 --allowed-namespace=shop,bank --quarantine=1m0s"
			w.waitForLostPools(one, v1.LostPool{Name: "blue", Command: command})
			w.waitUntilRecovered(1)
			found, _ := disagreements(t, multipool.NewChecker(w.backend, one.controller))
			if len(found) != 1 || found[0].Kind != "pool-rolled-back" || found[0].Subject != "pool blue" || !strings.Contains(found[0].Detail, command) {
				t.Errorf("found %+v, want pool-rolled-back with the command", found)
			}
			shown := callOf[v1.PoolSpec](t, w.backend, one.controller, http.StatusOK, http.MethodGet, "/v1/pool/blue", nil)
			if len(shown.Warnings) != 1 || !strings.Contains(shown.Warnings[0], command) {
				t.Errorf("warnings %q, want the command", shown.Warnings)
			}
			w.stop(one)
			w.start(one)
			w.mustAllocate(one)
			w.waitForLostPools(one, v1.LostPool{Name: "blue", Command: command})

			// An administrator has the last word.
			before.Disabled = true
			w.put(before)
			w.waitForLostPools(one)
			if got := w.epoch(); got != 1 {
				t.Errorf("%d recoveries, want 1", got)
			}
		})
	}
}

// TestPoolChangeLostLateWatch has the watch tell the change that the store has lost, after the node has noticed: one
// recovery is enough.
func TestPoolChangeLostLateWatch(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	before := w.pool("blue", 28, "10.1.0.0/24")
	late := newLateWatch(w.backend.Pools)
	w.backend.Pools = late
	one := w.machine("one", 1)
	after := before
	after.Quarantine = time.Minute
	after = w.put(after)
	w.wait("the node has seen the change", func() bool { return multipool.Seen(one.controller, "blue").Generation == after.Generation })
	w.lose("blue", &before)
	lost := v1.LostPool{Name: "blue", Command: "porin pool set blue --quarantine=1m0s"}
	w.waitForLostPools(one, lost)
	w.waitUntilRecovered(1)
	late.late <- after
	late.late <- before // the rounds for both are over when it is taken again
	late.late <- before
	w.waitForLostPools(one, lost)
	w.mustAllocate(one)
	w.waitUntilRecovered(1)
}

// TestPoolChangeRevertedLost has nothing for an administrator to do.
func TestPoolChangeRevertedLost(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	before := w.pool("blue", 28, "10.1.0.0/24")
	one := w.machine("one", 1)
	changed := before
	changed.Disabled = true
	w.put(changed)
	after := w.put(before)
	w.wait("the node has seen the changes", func() bool { return multipool.Seen(one.controller, "blue").Generation == after.Generation })
	w.lose("blue", &before)
	w.waitUntilRecovered(1)
	w.mustAllocate(one)
	if lost := w.lostPools(one); len(lost) > 0 || w.epoch() != 1 {
		t.Errorf("pools that the store has lost: %+v, %d recoveries, want 1 and no pool", lost, w.epoch())
	}
}

// TestEmptyPoolLost has the store lose a pool of which no node has a block: it is created again as it was.
func TestEmptyPoolLost(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	before := w.pool("blue", 28, "10.1.0.0/24")
	one := w.machine("one", 1)
	w.wait("the node has seen the pool", func() bool { return multipool.Seen(one.controller, "blue").UID == before.UID })
	w.lose("blue", nil)
	w.wait("the pool is created again", func() bool {
		p, err := w.backend.Pools.Get(t.Context(), "blue")
		return err == nil && p.UID == before.UID && p.State == cluster.PoolAccepted && slices.Equal(p.Prefixes, before.Prefixes)
	})
	w.waitUntilRecovered(1)
	w.waitForLostPools(one)
}

// listedPools have watches that tell nothing: pools are listed.
type listedPools struct{ cluster.Pools }

func (listedPools) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	silent := make(chan cluster.Change[cluster.Pool])
	context.AfterFunc(ctx, func() { close(silent) })
	return silent, nil
}

// TestDefaultPoolLostBeforeRecoveryIsSeen has a node learn that the default pool is gone before it learns of the recovery
// that another node has begun: it creates the pool of which it has blocks, not another one.
func TestDefaultPoolLostBeforeRecoveryIsSeen(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	before := w.pool("default", 28, "10.0.0.0/24")
	w.cfg.DefaultPool = []string{"10.0.0.0/24"}
	w.backend.Pools = listedPools{w.backend.Pools}
	var armed atomic.Bool
	w.backend = clustertest.Intercept(w.backend, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what == "Pools.All" && armed.CompareAndSwap(true, false) { // the agent has read the record of the cluster before
			s.Wipe()
			w.beginRecovery()
		}
		return call(ctx)
	})
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.stop(one)
	armed.Store(true)
	w.start(one)
	w.wait("the store is wiped", func() bool { return !armed.Load() })
	w.waitForDefaultPool(before)
	w.wait("the recovery is over", w.recovered)
}

// TestDefaultPoolLostNewNode has a node that has never seen the default pool come in a recovery: it creates none.
func TestDefaultPoolLostNewNode(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	before := w.pool("default", 28, "10.0.0.0/24")
	w.cfg.DefaultPool = []string{"10.0.0.0/24"}
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.stop(one)
	s.Wipe()
	if _, err := w.backend.Nodes.Create(t.Context(), cluster.Node{ID: one.controller.Status().Node, State: cluster.NodeActive}); err != nil {
		t.Fatal(err) // another node reports it, and the recovery waits for it
	}
	w.beginRecovery()
	two := w.machine("two", 2)
	w.rounds(two, 5)
	if p, err := w.backend.Pools.Get(t.Context(), "default"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("a node that has not seen the pool has created %+v, error %v", p, err)
	}
	w.start(one)
	w.waitForDefaultPool(before)
	w.wait("the recovery is over", w.recovered)
	w.mustAllocate(two)
}

// waitForDefaultPool waits until the pool is there again, as it was.
func (w *world) waitForDefaultPool(was cluster.Pool) {
	w.Helper()
	testutil.Eventually(w.T, func() error {
		p, err := w.backend.Pools.Get(w.Context(), was.Name)
		if err == nil && (p.State != cluster.PoolAccepted || p.UID != was.UID) {
			err = fmt.Errorf("pool %+v, want it with UID %s", p, was.UID)
		}
		return err
	})
}

// TestLostPoolOverlaps has somebody create another pool of its addresses before the recovery: the administrator is to
// say what holds.
func TestLostPoolOverlaps(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	before := w.pool("blue", 28, "10.1.0.0/24")
	one := w.machine("one", 1)
	w.wait("the node has seen the pool", func() bool { return multipool.Seen(one.controller, "blue").UID == before.UID })
	w.stop(one)
	w.lose("blue", nil)
	w.pool("red", 28, "10.1.0.0/24")
	w.start(one)
	w.waitForLostPools(one, v1.LostPool{Name: "blue", Gone: true, Command: "porin pool create blue --prefix=10.1.0.0/24 --quarantine=1ms --ipv4-block 28"})
	w.waitUntilRecovered(1)
	pools := admin.NewPools(w.backend)
	w.put(cluster.Pool{Name: "blue", Prefixes: prefixes("10.2.0.0/24")})
	w.waitForLostPools(one)
	if err := pools.Delete(t.Context(), "blue"); err != nil {
		t.Fatal(err)
	}
	w.waitForLostPools(one)
}

// TestSeenPoolDeleted deletes pools while the agent runs and while it does not, and creates one of them anew.
func TestSeenPoolDeleted(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	for i, name := range []string{"a", "b", "c"} {
		w.pool(name, 28, []string{"10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24"}[i])
	}
	one := w.machine("one", 1)
	w.wait("the node has seen them", func() bool { return multipool.Seen(one.controller, "c").UID != "" })
	pools := admin.NewPools(w.backend)
	remove := func(name string) {
		w.wait(name+" is deleted", func() bool { return pools.Delete(t.Context(), name) == nil })
	}
	remove("a")
	w.wait("it forgets the pool", func() bool { return multipool.Seen(one.controller, "a").UID == "" })
	w.stop(one)
	remove("b")
	remove("c")
	w.wait("it is gone", func() bool { _, err := pools.Get(t.Context(), "c"); return errors.Is(err, admin.ErrNoPool) })
	fresh := w.pool("c", 28, "10.4.0.0/24")
	w.start(one)
	w.wait("it forgets the pools", func() bool {
		return multipool.Seen(one.controller, "b").UID == "" && multipool.Seen(one.controller, "c").UID == fresh.UID
	})
	w.mustAllocate(one)
	if lost := w.lostPools(one); len(lost) > 0 || w.epoch() != 0 {
		t.Errorf("pools that the store has lost: %+v, %d recoveries, want none", lost, w.epoch())
	}
}

// TestRestartSeenPools changes pools of which a node has blocks, and restarts its agent without the store: nothing is
// given out that the changes forbid. After a wipe the pools are there as they were last.
func TestRestartSeenPools(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	p := w.pool("default", 28, "10.0.0.0/28", "10.0.1.0/28")
	one := w.machine("one", 1)
	first := w.mustAllocate(one)
	block := netip.PrefixFrom(first, 28).Masked()
	free := func() (n int64) {
		for _, b := range one.addresses.Pools().Blocks("default") {
			if !b.Drained {
				n += b.Free
			}
		}
		return n
	}
	restart := func() {
		one.network.Cut()
		w.stop(one)
		w.start(one)
	}
	for _, change := range []func(){
		func() { p.Exclude = []netip.Prefix{block} },
		func() { p.Exclude, p.Disabled = nil, true },
		func() {
			p.Disabled = false
			p.Prefixes = slices.DeleteFunc(slices.Clone(p.Prefixes), func(has netip.Prefix) bool { return has == block })
		},
	} {
		change()
		w.put(p)
		w.wait("nothing more is given out", func() bool { return free() == 0 })
		restart()
		if n := free(); n != 0 {
			t.Errorf("%d addresses can be given out after a restart without the store, of pool %+v", n, p)
		}
		one.network.Heal()
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	}
	s.Wipe()
	w.wait("the pool is there as it was", func() bool {
		now, err := w.backend.Pools.Get(t.Context(), "default")
		return err == nil && now.State == cluster.PoolAccepted && slices.Equal(now.Prefixes, p.Prefixes)
	})
}

// TestSeenPoolDeletionGivenUp interrupts the deletion of a pool, and wants the pool after all: the loss of a later
// change is noticed.
func TestSeenPoolDeletionGivenUp(t *testing.T) {
	s := newStrict(t)
	w := newWorld(t, s.Backend())
	p := w.pool("default", 28, "10.0.0.0/24")
	one := w.machine("one", 1)
	w.wait("one is connected", func() bool { return one.controller.Status().Connected })
	interrupted := clustertest.Intercept(w.backend, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what == "Pools.Delete" {
			return cluster.ErrUnavailable
		}
		return call(ctx)
	})
	if err := admin.NewPools(interrupted).Delete(t.Context(), "default"); !errors.Is(err, cluster.ErrUnavailable) {
		t.Fatal(err)
	}
	p = w.put(p)
	backup := s.Backup()
	p.Exclude = prefixes("10.0.0.1/32")
	p = w.put(p)
	w.wait("one has seen the change", func() bool { return len(multipool.Seen(one.controller, "default").Exclude) == 1 })
	one.network.Cut()
	s.RestoreAhead(backup) // its position tells nothing
	one.network.Heal()
	w.waitForLostPools(one, v1.LostPool{Name: "default", Command: "porin pool set default --exclude=10.0.0.1/32"})
	if w.epoch() == 0 {
		t.Error("no recovery has begun")
	}
}
