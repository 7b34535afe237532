package multipool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/cells/ipam/multipool"
)

// TestContestAfterRestart restarts the agents of a node and its copy while the store is away.
func TestContestAfterRestart(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/28")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.endPods(one)
	w.mustAllocate(one)
	copied := w.contestedCopy(one)
	for _, m := range []*machine{one, copied} {
		w.stop(m)
		m.network.Cut()
		w.start(m)
	}
	for range 3 {
		_, _ = w.allocate(one, 50*time.Millisecond)
		_, _ = w.allocate(copied, 50*time.Millisecond)
	}
}

// TestNodeDeleteDuringBoot boots a machine while an administrator deletes its node as off, after a reset of its
// session. It continues as another node.
func TestNodeDeleteDuringBoot(t *testing.T) {
	w := newWorld(t, embeddedtest.New(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28")
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	id := one.controller.Status().Node
	w.stop(one)
	w.endPods(one)
	one.boots++
	if err := w.nodeAdmin().Reset(t.Context(), id); err != nil { // there was a contest once, or a deletion was interrupted
		t.Fatal(err)
	}
	started := make(chan struct{})
	boot := sync.OnceFunc(func() {
		w.start(one)
		w.wait("it is another node", func() bool { s := one.controller.Status(); return s.Connected && s.Node != id })
		close(started)
	})
	b := clustertest.Intercept(w.backend, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what == "Blocks.All" {
			boot()
		}
		return call(ctx)
	})
	nodes := admin.NewNodes(b)
	nodes.RecordDelay = time.Second
	done := make(chan error, 1)
	go func() { done <- nodes.Delete(context.Background(), id, true) }()
	<-started
	for deleted := false; !deleted && !t.Failed(); {
		_, _ = w.allocate(one, 50*time.Millisecond)
		_, _ = w.allocate(two, 50*time.Millisecond)
		select {
		case err := <-done:
			if deleted = true; err != nil {
				t.Error(err)
			}
		default:
		}
	}
	for len(w.owners) == 0 && !t.Failed() { // the block is free again
		_, _ = w.allocate(one, 50*time.Millisecond)
		_, _ = w.allocate(two, 50*time.Millisecond)
	}
}

// TestLateChecks loses the answer of one creation in a pool of one block.
func TestLateChecks(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28")
	create := w.breakable("Blocks.Create")
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	create.failNext(1)
	w.mustAllocate(one) // the claim whose answer was lost is deleted for a while
}

// TestClaimAfterLostAnswer loses the answer of a creation in a pool of one block, and needs the block long before it is
// sure that the creation does not arrive late.
func TestClaimAfterLostAnswer(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate, w.cfg.IdleTime = 0, time.Hour
	w.pool("default", 28, "10.0.0.0/28")
	create := w.breakable("Blocks.Create")
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	create.failNext(1)
	w.mustAllocate(one)
}

// TestRecoveryWhileDraining has a pod in a prefix that was taken out of its pool, and a recovery.
func TestRecoveryWhileDraining(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	p := w.pool("default", 28, "10.0.0.0/28", "10.0.1.0/28")
	one := w.machine("one", 1)
	addr := w.mustAllocate(one)
	if p.Prefixes[0].Contains(addr) {
		p.Prefixes = p.Prefixes[1:]
	} else {
		p.Prefixes = p.Prefixes[:1]
	}
	if _, err := admin.NewPools(w.backend).Put(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.beginRecovery()
	w.endRecovery()
}

func TestSessionStoreFull(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	put := w.breakable("Sessions.Put") // a store that is full is read, and not written
	one := w.machine("one", 1)
	w.mustAllocate(one)
	put.fail()
	w.stop(one)
	w.start(one)
	w.wait("it has tried for two minutes (of 1 s each)", func() bool { return put.failed.Load() > 120 })
	put.mend() // the administrator has made room
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if one.controller.Status().Connected {
			return
		}
	}
	t.Errorf("the node does not get going again: %v", one.controller.Status().Contested)
}

func TestStartWithManyNodes(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/16")
	for i := range 5000 {
		id := cluster.NodeID{Name: fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/256, i%256), Key: cluster.NewKey()}
		if _, err := w.backend.Nodes.Create(t.Context(), cluster.Node{ID: id, State: cluster.NodeActive}); err != nil {
			t.Fatal(err)
		}
	}
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected }) // 39 s when each node was sorted in
	w.mustAllocate(one)
}

func TestCheckDuringClaim(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	two := w.machine("two", 2)
	plain := w.backend
	var hold atomic.Bool
	reached, goOn := make(chan struct{}), make(chan struct{})
	w.backend = clustertest.Intercept(plain, func(ctx context.Context, what string, call func(context.Context) error) error {
		if what == "Pools.Get" && hold.CompareAndSwap(true, false) {
			close(reached)
			<-goOn
		}
		return call(ctx)
	})
	one := w.machine("one", 1)
	w.backend = plain
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	hold.Store(true)
	done := make(chan struct{})
	go func() { defer close(done); w.mustAllocate(one) }()
	<-reached // the block is created; the store takes a second for the reads that follow
	checker := multipool.NewChecker(plain, one.controller)
	first, err := checker.Examine(t.Context(), "")
	second, err2 := checker.Examine(t.Context(), "")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	close(goOn)
	<-done
	if len(first) != 1 || len(second) != 1 || second[0].Kind != "block-unknown" {
		t.Logf("found %+v", second)
		return
	}
	if err := second[0].Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && !t.Failed(); {
		if addr, err := w.allocate(two, 100*time.Millisecond); err == nil {
			t.Logf("two has %s", addr)
		}
	}
}

func TestNodeRecordDeletedWhileDown(t *testing.T) {
	w := newWorld(t, embeddedtest.New(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	id := one.controller.Status().Node
	w.wait("two is connected", func() bool { return two.controller.Status().Connected })
	w.stop(one) // an upgrade; its pod runs
	n, err := w.backend.Nodes.Get(t.Context(), id)
	if err == nil {
		err = w.backend.Nodes.Delete(t.Context(), n)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.wait("it is gone", func() bool {
		_, err := w.backend.Nodes.Get(t.Context(), id)
		return errors.Is(err, cluster.ErrNotFound)
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && !t.Failed(); {
		_, _ = w.allocate(two, 100*time.Millisecond)
	}
}
