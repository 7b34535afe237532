package blocks_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/boottime"
)

// cluster is some nodes on one store, and the simple truth: who has which address.
type cluster struct {
	*testing.T
	store store.Store
	cfg   blocks.Config
	loss  float64
	dir   string

	mu     sync.Mutex // guards the fields below
	owners map[netip.Addr]*simNode
	done   int // allocations and releases
}

// simNode is one node of it.
type simNode struct {
	name    string
	network *network
	local   *plain
	manager *blocks.Manager
	stop    func()
	doomed  time.Duration // when nobody counts any more on what it had before; the cluster's lock guards it
	ahead   atomic.Int64  // by how much its clock goes before the others', in ns
}

// clock is the node's boot clock.
func (n *simNode) clock() time.Duration { return boottime.Now() + time.Duration(n.ahead.Load()) }

func newCluster(t *testing.T, s store.Store, pool blocks.Pool, cfg blocks.Config, loss float64) *cluster {
	t.Helper()
	if _, err := blocks.NewPools(s).Put(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return &cluster{T: t, store: s, cfg: cfg, loss: loss, dir: t.TempDir(), owners: map[netip.Addr]*simNode{}}
}

func (c *cluster) node(i int) *simNode {
	n := &simNode{name: fmt.Sprintf("node-%d", i), network: newNetwork(c.store, uint64(i), c.cfg.LeaseTTL, c.loss)}
	n.local = newPlain(n.clock)
	c.start(n)
	return n
}

// start begins another life of a node's agent: what is in use there outlived the last one.
func (c *cluster) start(n *simNode) {
	cfg := c.cfg
	cfg.Node, cfg.MemoPath = n.name, filepath.Join(c.dir, n.name+".json")
	kept := n.local.all()
	n.local = newPlain(n.clock)
	for _, addr := range kept {
		n.local.used[addr] = true
	}
	manager, err := blocks.New(cfg, n.network, n.local, n.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		c.Error(err)
		return
	}
	manager.Start()
	n.manager = manager
	n.stop = func() { _ = manager.Stop(context.Background()) }
}

// take is called under the lock of who gives the address out.
func (c *cluster) take(n *simNode) func(netip.Addr) {
	return func(addr netip.Addr) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done++
		if owner := c.owners[addr]; owner != nil && !owner.isDoomed() {
			c.Errorf("%s is given to %s and is %s's", addr, n.name, owner.name)
		}
		c.owners[addr] = n
	}
}

func (c *cluster) free(n *simNode, addr netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	if c.owners[addr] == n {
		delete(c.owners, addr)
	}
}

// doom has nobody count any more, from a time on, on what a node that is cut off has.
func (c *cluster) doom(n *simNode, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.doomed = boottime.Now() + after
}

func (n *simNode) isDoomed() bool { return n.doomed > 0 && boottime.Now() >= n.doomed }

// forget has all that a node has be nobody's: its containers are gone with it.
func (c *cluster) forget(n *simNode) {
	for _, addr := range n.local.all() {
		n.local.release(addr, func(addr netip.Addr) { c.free(n, addr) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n.doomed = 0
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// use allocates and releases at random, about as many as want to be in use at a time.
func (c *cluster) use(n *simNode, rng *rand.Rand, want int) {
	all := n.local.all()
	if len(all) > 0 && rng.IntN(2*want) < len(all) {
		n.local.release(all[rng.IntN(len(all))], func(addr netip.Addr) { c.free(n, addr) })
		return
	}
	c.allocate(n, 50*time.Millisecond)
}

// patience is as long as somebody waits for a block, and a little.
const patience = 4 * time.Second

// allocate waits for more blocks when there is none.
func (c *cluster) allocate(n *simNode, patience time.Duration) bool {
	if _, ok := n.local.allocate(c.take(n)); ok {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = n.manager.More(ctx, "default")
	_, ok := n.local.allocate(c.take(n))
	return ok
}
