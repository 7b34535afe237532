package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/multipool"
)

// figuresDir is where each simulation writes its figures, for the bench. Without it they are short.
var figuresDir = flag.String("figures", "", "folder for the figures of the simulations, as NAME.json")

// scaled is the size of a simulation.
func scaled(full, short int) int {
	if *figuresDir == "" {
		return short
	}
	return full
}

func record(t *testing.T, name string, f figures) {
	t.Helper()
	t.Logf("%s: %v", name, f)
	if *figuresDir == "" {
		return
	}
	text, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(filepath.Join(*figuresDir, name+".json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// simulation is nodes on an embedded store, in a bubble of package synctest: hours pass at once, and all is real but
// the time.
type simulation struct {
	*testing.T
	store *embedded.Store
	began time.Time
	nodes []*node
}

func newSimulation(t *testing.T, pool cluster.Pool) *simulation {
	t.Helper()
	s := embedded.New(t.TempDir(), slog.New(slog.DiscardHandler))
	err := s.Start(t.Context())
	if err == nil {
		_, err = admin.NewPools(s.Backend()).Put(t.Context(), pool)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &simulation{T: t, store: s, began: time.Now()}
}

// start has so many nodes run, and waits until all are connected.
func (s *simulation) start(n int) {
	s.Helper()
	for i := range n {
		one, err := newNode(s.store.Backend(), i, func() time.Duration { return time.Since(s.began) })
		if err == nil {
			err = one.multi.Start()
		}
		if err != nil {
			s.Fatal(err)
		}
		s.nodes = append(s.nodes, one)
	}
	time.Sleep(time.Minute)
	for i, one := range s.nodes {
		if !one.multi.Status().Connected {
			s.Fatalf("node %d is not connected", i)
		}
	}
}

func (s *simulation) stop() {
	s.Helper()
	for _, one := range s.nodes {
		if err := one.stop(context.Background()); err != nil {
			s.Error(err)
		}
	}
	if err := s.store.Stop(context.Background()); err != nil {
		s.Error(err)
	}
}

// sum adds up what all nodes have counted.
func (s *simulation) sum(count func(*counted) int64) (sum int64) {
	for _, one := range s.nodes {
		sum += count(one.store)
	}
	return sum
}

func (s *simulation) revision() uint64 {
	s.Helper()
	_, p, err := s.store.Backend().Info.Get(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return p.Revision
}

// podRetry is the time between two tries of a runtime to attach a pod.
const podRetry = 10 * time.Second

// TestWaitingNodes counts the lists of blocks while pods on many nodes wait for an address of a pool whose blocks are
// all taken.
func TestWaitingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, cluster.Pool{
			Name: multipool.DefaultPool, IPv4BlockBits: 26, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/18")},
		})
		defer s.stop()
		b := s.store.Backend()
		pool, err := b.Pools.Get(t.Context(), multipool.DefaultPool)
		if err == nil {
			err = occupy(t.Context(), b, pool, pool.Blocks(cluster.IPv4))
		}
		if err != nil {
			t.Fatal(err)
		}
		waitingNodes := scaled(80, 16)
		s.start(waitingNodes)
		lists := func() int64 { return s.sum(func(c *counted) int64 { return c.lists.Load() }) }
		creates := func() int64 { return s.sum(func(c *counted) int64 { return c.creates.Load() }) }
		before := lists()
		ctx, cancel := context.WithCancel(t.Context())
		var pods sync.WaitGroup
		for i, n := range s.nodes {
			pods.Go(func() {
				for ctx.Err() == nil {
					if a, err := n.source.Allocate(ctx, allocator.Request{Owner: handle(0)}); err == nil {
						t.Errorf("node %d has %v of a pool without a free block", i, a)
					}
					select {
					case <-ctx.Done():
					case <-time.After(podRetry):
					}
				}
			})
		}
		time.Sleep(time.Minute)
		atStart, tries := lists()-before, creates()
		waitingTime := time.Duration(scaled(120, 30)) * time.Minute
		time.Sleep(waitingTime)
		later, spells := lists()-before-atStart, float64(waitingTime/(10*time.Minute))
		cancel()
		pods.Wait()
		f := figures{
			"lists-at-start": float64(atStart) / float64(waitingNodes), "lists-in-ten-minutes": float64(later) / float64(waitingNodes) / spells,
			"creates-a-minute": float64(creates()-tries) / float64(waitingNodes) / waitingTime.Minutes(),
		}
		record(t, "waiting", f)
		if f["lists-at-start"] != 1 || f["lists-in-ten-minutes"] > 1 {
			t.Errorf("lists of a node: %v at the start, %v in ten minutes; want 1 and at most 1", f["lists-at-start"], f["lists-in-ten-minutes"])
		}
	})
}

// TestIdleNodes counts the writes of nodes on which no pod comes or goes. Some of the nodes are real and stand for all:
// of the others there are records.
func TestIdleNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, defaultPool)
		defer s.stop()
		b := s.store.Backend()
		nodes, sampled := scaled(nodes, 200), scaled(sampledNodes, 20)
		for i := sampled; i < nodes; i++ {
			id := cluster.NodeID{Name: nodeName(i), Key: cluster.NewKey()}
			_, err := b.Nodes.Create(t.Context(), cluster.Node{ID: id, State: cluster.NodeActive, Created: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
		}
		s.start(sampled)
		for i, n := range s.nodes {
			if err := n.fill(t.Context(), 0, podsPerNode); err != nil {
				t.Fatal(fmt.Errorf("node %d: %w", i, err))
			}
		}
		time.Sleep(5 * time.Minute) // the node gives blocks back that it claimed ahead and does not need
		idleTime, share := time.Duration(scaled(60, 30))*time.Minute, float64(sampled)/float64(nodes)
		before, reads := s.revision(), s.sum(func(c *counted) int64 { return c.reads.Load() })
		time.Sleep(idleTime)
		f := figures{
			"writes-an-hour": float64(s.revision()-before) / share / idleTime.Hours(),
			"reads-a-second": float64(s.sum(func(c *counted) int64 { return c.reads.Load() })-reads) / share / idleTime.Seconds(),
		}
		record(t, "idle", f)
		if f["writes-an-hour"] != 0 {
			t.Errorf("%v writes an hour, want 0", f["writes-an-hour"])
		}
	})
}

// TestStartCalls bounds what a new node with its first pod asks of the store.
func TestStartCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, defaultPool)
		defer s.stop()
		s.start(1)
		if err := s.nodes[0].fill(t.Context(), 0, 1); err != nil {
			t.Fatal(err)
		}
		if calls := s.nodes[0].store.calls(); calls > 50 { // 12 of them for its two blocks
			t.Errorf("%d calls of the first minute", calls)
		}
	})
}
