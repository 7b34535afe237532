package blocks_test

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

var operations = flag.Int("operations", 50000, "how many allocations and releases the model test makes on each store")

// eachStore runs the test on each backend.
func eachStore(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, storetest.New(t))
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		test(t, storetest.Open(t, etcdtest.Start(t, nil).Config()))
	})
}

// small is a pool of 1,024 addresses in 64 blocks.
var small = blocks.Pool{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/22")}, IPv4BlockBits: 28}

// quick is a node to which ten seconds are a long time.
func quick() blocks.Config {
	return blocks.Config{
		PreAllocate: 4, LeaseTTL: 2 * time.Second, Grace: 10 * time.Second, GiveBackAfter: 200 * time.Millisecond, Interval: 50 * time.Millisecond,
	}
}

// TestNoAddressHasTwoOwners has several nodes on one store allocate and release at random, while answers are lost, nodes
// are cut off, for a short or a long time, restarted, or die, and clocks jump ahead. A simple truth knows who has which address. At the end all
// addresses can be given out, each once.
func TestNoAddressHasTwoOwners(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		calls := &counted{Store: s}
		c := newCluster(t, calls, small, quick(), 0.15)
		var nodes []*simNode
		var busy, trouble sync.WaitGroup
		calm := make(chan struct{})
		for i := range 8 {
			n := c.node(i)
			nodes = append(nodes, n)
			var life sync.RWMutex // held for writing while the node has no agent
			busy.Go(func() {
				rng := seeded(i, 2)
				for i, want := 0, 60; c.count() < *operations; i++ {
					if i%100 == 0 {
						want = 1 + rng.IntN(120) // so that blocks come and go
					}
					life.RLock()
					c.use(n, rng, want)
					life.RUnlock()
					time.Sleep(time.Duration(rng.IntN(12)) * time.Millisecond) // so that there is time for trouble
				}
			})
			if i >= 3 { // the others lose answers only: somebody must be there to take what the troubled ones lose
				trouble.Go(func() { c.trouble(n, &life, seeded(i, 3), calm) })
			}
		}
		busy.Wait()
		close(calm)
		trouble.Wait()
		for _, n := range nodes {
			c.forget(n)
		}
		c.giveOutAll(nodes, 1024)
		for _, n := range nodes {
			n.stop()
		}
		t.Logf("%d operations, %d changes of blocks, %d of them met another node's", c.count(), calls.claims.Load(), calls.conflicts.Load())
	})
}

// seeded returns numbers that have nothing to do with those of another node: of seeds that follow each other the first ones
// are alike, and all nodes would be cut off together.
func seeded(node, what int) *rand.Rand {
	rng := rand.New(rand.NewPCG(uint64(node)<<32|uint64(what), 0x9e3779b97f4a7c15))
	for range 100 {
		rng.Uint64()
	}
	return rng
}

// trouble happens to one node until calm, and is over then.
func (c *cluster) trouble(n *simNode, life *sync.RWMutex, rng *rand.Rand, calm <-chan struct{}) {
	for {
		select {
		case <-calm:
			return
		case <-time.After(time.Duration(rng.IntN(400)) * time.Millisecond):
		}
		switch rng.IntN(7) {
		case 0, 1: // the agent is restarted, perhaps while the store is away
			if rng.IntN(2) == 0 {
				n.network.cutOff()
			}
			life.Lock()
			n.stop()
			c.start(n)
			life.Unlock()
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			n.network.heal()
		case 2, 3: // a short cut
			n.network.cutOff()
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			n.network.heal()
		case 4: // a cut for longer than the grace time: nobody counts on what is there any more
			n.network.cutOff()
			until := c.cfg.LeaseTTL + c.cfg.Grace*93/100 // its fence is at nine tenths, from when it lost its lease on
			c.doom(n, until)
			time.Sleep(until)
			life.Lock()
			c.forget(n)
			life.Unlock()
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond) // others have its blocks by now
			n.network.heal()
		case 6: // its clock jumps ahead of the others': by no more in all than what the fence leaves of the grace time
			if jump := c.cfg.Grace / 200; n.ahead.Load() < int64(5*jump) {
				n.ahead.Add(rng.Int64N(int64(jump)))
			}
		case 5: // it dies with all that is on it, and comes back
			life.Lock()
			n.network.cutOff()
			n.stop()
			c.forget(n)
			time.Sleep(time.Duration(rng.IntN(13000)) * time.Millisecond)
			n.network.heal()
			c.start(n)
			life.Unlock()
		}
	}
}

// giveOutAll has the nodes give out every address that there is.
func (c *cluster) giveOutAll(nodes []*simNode, all int) {
	var given int
	deadline := time.Now().Add(time.Minute)
	for given < all && time.Now().Before(deadline) {
		for _, n := range nodes {
			if c.allocate(n, 100*time.Millisecond) {
				given++
			}
		}
	}
	if given != all {
		c.Errorf("%d of %d addresses can be given out", given, all)
	}
}
