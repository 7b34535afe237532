package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counts is what happened. That a killed agent or plugin makes calls fail is no fault.
type counts struct {
	adds, addsFailed, addsKilled atomic.Int64
	dels, delsFailed, delsKilled atomic.Int64
	agents                       atomic.Int64 // killed
	policies, layer7Policies     atomic.Int64 // changed
	proxiesKilled                atomic.Int64
	proxiesReplaced              atomic.Int64 // while they ran
	// Of guests, through the proxy.
	guestRequests, guestRequestsFailed atomic.Int64
	// Of the API servers.
	serversKilled, hangs, partitions atomic.Int64
	nodesCut                         atomic.Int64 // Porin's nodes that were cut off
	restores, announced, backThen    atomic.Int64 // of the API; backThen is the sum of how long before the backups were made
	comparisons, blocks, addresses   atomic.Int64 // of all nodes, and what they had, in sum
	agreed                           atomic.Int64 // nodes that claimed a block at the end
}

func (c *counts) print() {
	fmt.Printf("chaos: ADD %d succeeded, %d failed, %d killed; DEL %d succeeded, %d failed, %d killed; %d plugins and %d agents killed, %d changes of policies, %d of layer 7 rules\n",
		c.adds.Load(), c.addsFailed.Load(), c.addsKilled.Load(), c.dels.Load(), c.delsFailed.Load(), c.delsKilled.Load(),
		c.addsKilled.Load()+c.delsKilled.Load(), c.agents.Load(), c.policies.Load(), c.layer7Policies.Load())
	fmt.Printf("chaos: porin-proxy %d times killed, %d times replaced while it ran; requests of guests: %d answered by the server or the rules, %d failed\n",
		c.proxiesKilled.Load(), c.proxiesReplaced.Load(), c.guestRequests.Load(), c.guestRequestsFailed.Load())
	if n := c.restores.Load(); n > 0 {
		fmt.Printf("chaos: API: %d servers killed, %d times some stopped for a while, %d cut off; %d times restored from a backup of %v before on average, %d of these announced; %d times a node cut off\n",
			c.serversKilled.Load(), c.hangs.Load(), c.partitions.Load(), n, (time.Duration(c.backThen.Load()) / time.Duration(n)).Round(100*time.Millisecond), c.announced.Load(), c.nodesCut.Load())
		fmt.Printf("chaos: owners on all nodes compared %d times, %d blocks and %d addresses in sum; %d nodes claimed a block at the end\n",
			c.comparisons.Load(), c.blocks.Load(), c.addresses.Load(), c.agreed.Load())
	}
}

// enough checks that it was chaos: whatever was to happen did.
func (w *world) enough(t *testing.T) {
	t.Helper()
	c := &w.counts
	due := map[string]*atomic.Int64{
		"ADD succeeded": &c.adds, "ADD was killed": &c.addsKilled, "DEL was killed": &c.delsKilled, "agent was killed": &c.agents,
		"policy was changed": &c.policies, "layer 7 rule was changed": &c.layer7Policies, "porin-proxy was killed": &c.proxiesKilled,
		"porin-proxy was replaced": &c.proxiesReplaced, "request of a guest had an answer": &c.guestRequests,
	}
	if w.api != nil {
		for what, n := range map[string]*atomic.Int64{
			"API server was killed": &c.serversKilled, "API server was stopped": &c.hangs, "API server was cut off": &c.partitions,
			"API was restored": &c.restores, "comparison of owners": &c.comparisons,
			"node was cut off": &c.nodesCut, "block was compared": &c.blocks, "address was compared": &c.addresses,
		} {
			due[what] = n
		}
	}
	for what, n := range due {
		if n.Load() == 0 {
			t.Errorf("no %s", what)
		}
	}
}

// wrongs are the faults, by their kind.
type wrongs struct {
	mu sync.Mutex // guards the field below
	by map[string][]string
}

func (w *wrongs) add(kind, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[kind] = append(w.by[kind], what)
}

// report fails the test for each kind, with some of them.
func (w *world) report(t *testing.T) {
	t.Helper()
	w.wrongs.mu.Lock()
	defer w.wrongs.mu.Unlock()
	sum := 0
	for _, kind := range slices.Sorted(maps.Keys(w.wrongs.by)) {
		all := w.wrongs.by[kind]
		sum += len(all)
		fmt.Printf("chaos: %s: %d\n", kind, len(all))
		for _, what := range all[:min(len(all), 5)] {
			t.Errorf("seed %d: %s: %s", w.seed, kind, what)
		}
	}
	fmt.Printf("chaos: %d leaks and losses\n", sum)
}
