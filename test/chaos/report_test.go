package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// counts is what happened. That a killed agent or plugin makes calls fail is no fault.
type counts struct {
	adds, addsFailed, addsKilled atomic.Int64
	dels, delsFailed, delsKilled atomic.Int64
	agents                       atomic.Int64 // killed
	outages, hangs               atomic.Int64 // of etcd: all, and those that did not end it
}

func (c *counts) print() {
	fmt.Printf("chaos: ADD %d succeeded, %d failed, %d killed; DEL %d succeeded, %d failed, %d killed; %d plugins and %d agents killed\n",
		c.adds.Load(), c.addsFailed.Load(), c.addsKilled.Load(), c.dels.Load(), c.delsFailed.Load(), c.delsKilled.Load(),
		c.addsKilled.Load()+c.delsKilled.Load(), c.agents.Load())
	if all, hangs := c.outages.Load(), c.hangs.Load(); all > 0 {
		fmt.Printf("chaos: etcd killed %d times, and stopped for a while %d times\n", all-hangs, hangs)
	}
}

// enough checks that it was chaos: whatever was to happen did.
func (w *world) enough(t *testing.T) {
	t.Helper()
	c := &w.counts
	due := map[string]*atomic.Int64{
		"ADD succeeded": &c.adds, "ADD was killed": &c.addsKilled, "DEL was killed": &c.delsKilled, "agent was killed": &c.agents,
	}
	if w.etcd != nil {
		due["etcd was away"] = &c.outages
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
