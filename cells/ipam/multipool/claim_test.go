package multipool_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
)

func TestClaim(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one, two := w.machine("one", 1), w.machine("two", 2)
		a, c := w.mustAllocate(one), w.mustAllocate(two)
		if a == c {
			t.Errorf("both have %s", a)
		}
		owners := map[string]int{}
		for _, bl := range w.blocks() {
			owners[bl.Owner.Name]++
		}
		if owners["one"] != 1 || owners["two"] != 1 {
			t.Errorf("blocks by owner: %v, want one each", owners)
		}
	})
}

func TestClaimExhausted(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		w.pool("default", 30, "10.0.0.0/29") // two blocks
		one, two, three := w.machine("one", 1), w.machine("two", 2), w.machine("three", 3)
		w.mustAllocate(one)
		w.mustAllocate(two)
		w.refused(three, multipool.ErrNoBlock)
		w.endPods(one) // its block comes free
		w.mustAllocate(three)
	})
}

func TestRequestedAddress(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one, two := w.machine("one", 1), w.machine("two", 2)
		addr := netip.MustParseAddr("10.0.0.35")
		w.wait("the block is claimed", func() bool { return one.controller.Refill(t.Context(), "default", addr) == nil })
		if len(w.blocks()) != 1 || w.blocks()[0].CIDR.String() != "10.0.0.32/28" {
			t.Errorf("blocks %+v", w.blocks())
		}
		var err error
		w.wait("the owner is named", func() bool {
			err = two.controller.Refill(t.Context(), "default", addr)
			return err != nil && errors.Is(err, err)
		})
		if err == nil {
			t.Error("two nodes have the block")
		}
	})
}

func TestGiveBackIdle(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		w.endPods(one)
		w.wait("an idle node has no block", func() bool { return len(w.blocks()) == 0 })
	})
}

func TestReplacedMachine(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		old := w.machine("one", 1)
		w.mustAllocate(old)
		replacement := w.machine("one", 2) // the old one goes on
		w.mustAllocate(replacement)
		if n := len(w.blocks()); n != 2 {
			t.Errorf("%d blocks, want one for each machine", n)
		}
	})
}

func TestRestartWithoutStore(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		w.mustAllocate(one)
		one.network.Cut()
		w.stop(one)
		w.start(one)
		if _, err := w.allocate(one, time.Millisecond); err != nil {
			t.Errorf("after a restart without the store: %v", err)
		}
		w.stop(one)
		w.endPods(one)
		one.boots++
		w.start(one)
		if addr, err := w.allocate(one, 50*time.Millisecond); err == nil {
			t.Errorf("after a boot without the store: %s is given out", addr)
		}
		one.network.Heal()
		w.mustAllocate(one)
	})
}

func TestPreAllocateSeveralBlocks(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate, w.cfg.Interval = 100, time.Hour
	w.pool("default", 28, "10.0.0.0/24")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	multipool.Kick(one.controller) // as the allocator does, once
	w.wait("all that is kept ahead is claimed at once", func() bool { return len(w.blocks()) == 7 })
}

// silentNodes are nodes whose watch tells nothing. It counts how often the record of another node than the own one is
// read.
type silentNodes struct {
	cluster.Nodes
	own  string
	read atomic.Int64
}

func (s *silentNodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	none := make(chan cluster.Change[cluster.Node])
	context.AfterFunc(ctx, func() { close(none) })
	return none, nil
}

func (s *silentNodes) Get(ctx context.Context, id cluster.NodeID) (cluster.Node, error) {
	if id.Name != s.own {
		s.read.Add(1)
	}
	return s.Nodes.Get(ctx, id)
}

func TestClaimListBeforeNodesKnown(t *testing.T) {
	w := newWorld(t, strict(t))
	pool := w.pool("default", 28, "10.0.0.0/24")
	other := cluster.NodeID{Name: "other", Key: cluster.NewKey()}
	if _, err := w.backend.Nodes.Create(t.Context(), cluster.Node{ID: other, State: cluster.NodeActive}); err != nil {
		t.Fatal(err)
	}
	for i := range pool.Blocks(cluster.IPv4) {
		b := cluster.Block{CIDR: pool.Block(cluster.IPv4, i), Pool: pool.Name, PoolUID: pool.UID, Owner: other, Claim: rand.Text()}
		if err := w.backend.Blocks.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	nodes := &silentNodes{Nodes: w.backend.Nodes, own: "one"}
	w.backend.Nodes = nodes
	w.refused(w.machine("one", 1), multipool.ErrNoBlock)
	if n := nodes.read.Load(); n != 0 {
		t.Errorf("the owners of %d blocks were read %d times", pool.Blocks(cluster.IPv4), n)
	}
}

// TestClaimDualStackFull asks for addresses of a pool that has free IPv4 blocks and no IPv6 block: while the latter is
// known, nothing is claimed.
func TestClaimDualStackFull(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate, w.cfg.SearchTime = 0, time.Hour
	p := cluster.Pool{Name: "dual", Prefixes: prefixes("10.0.0.0/24", "fd00::/122"), IPv4BlockBits: 28}
	p, err := admin.NewPools(w.backend).Put(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	other := clustertest.NodeNamed("other")
	if _, err := w.backend.Nodes.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b := cluster.Block{CIDR: p.Block(cluster.IPv6, 0), Pool: p.Name, PoolUID: p.UID, Owner: other.ID, Claim: rand.Text()}
	if err := w.backend.Blocks.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	backend, creations := countCalls(w.backend, "Blocks.Create")
	w.backend = backend
	one := w.machine("one", 1)
	full := func() bool { return errors.Is(one.controller.Refill(t.Context(), "dual"), multipool.ErrNoBlock) }
	w.wait("the node knows", full)
	known := creations.Load()
	for range 20 {
		if !full() {
			t.Error("the pool is not full")
		}
	}
	if n := creations.Load() - known; n != 0 {
		t.Errorf("20 pods that can get nothing: %d blocks are claimed", n)
	}
}
