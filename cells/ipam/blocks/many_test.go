package blocks_test

import (
	"context"
	"flag"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// counted counts the claims that reach the store, and those that met another node's.
type counted struct {
	store.Store
	claims, conflicts atomic.Int64
}

func (c *counted) Create(ctx context.Context, key string, value []byte, l store.Lease) (int64, error) {
	revision, err := c.Store.Create(ctx, key, value, l)
	if l == nil && strings.HasPrefix(key, "blocks/") {
		c.count(err)
	}
	return revision, err
}

func (c *counted) CompareAndSwap(ctx context.Context, key string, was int64, value []byte) (int64, error) {
	revision, err := c.Store.CompareAndSwap(ctx, key, was, value)
	c.count(err)
	return revision, err
}

func (c *counted) count(err error) {
	if c.claims.Add(1); err != nil {
		c.conflicts.Add(1)
	}
}

var manyNodes = flag.Int("nodes", 200, "how many nodes TestManyNodesStartTogether starts: a multiple of 8")

// TestManyNodesStartTogether starts nodes on a pool with just enough blocks, on a real etcd. All get theirs. Then a quarter
// of them dies, and their blocks come back.
func TestManyNodesStartTogether(t *testing.T) {
	nodes, dying := *manyNodes, *manyNodes/4
	s := &counted{Store: storetest.Open(t, etcdtest.Start(t, nil).Config())}
	pool := blocks.Pool{Name: "default", IPv4BlockBits: 28}
	for i := range nodes / 8 { // eight blocks each
		pool.Prefixes = append(pool.Prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 25))
	}
	cfg := quick()
	cfg.Interval, cfg.LeaseTTL, cfg.Grace = time.Duration(nodes)*time.Millisecond, 10*time.Second, 20*time.Second
	c := newCluster(t, s, pool, cfg, 0)
	began := time.Now()
	all := make([]*simNode, nodes)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			all[i] = c.node(i)
			for end := time.Now().Add(3 * time.Minute); !c.allocate(all[i], time.Second); {
				if time.Now().After(end) {
					t.Errorf("%s got no block: %+v", all[i].name, all[i].local.Usage(""))
					return
				}
			}
		})
	}
	starting.Wait()
	t.Logf("%d nodes have an address each after %s: %d claims, %d conflicts", nodes, time.Since(began).Round(time.Millisecond), s.claims.Load(), s.conflicts.Load())
	if claims := s.claims.Load(); claims > int64(3*nodes) {
		t.Errorf("%d claims for %d nodes: they fight for the same blocks", claims, nodes)
	}
	var stopping sync.WaitGroup
	for _, n := range all[:dying] {
		stopping.Go(func() { n.network.cutOff(); n.stop(); c.forget(n) })
	}
	stopping.Wait()
	died := time.Now()
	for left := dying; left > 0; {
		if time.Since(died) > 3*time.Minute {
			t.Fatalf("%d blocks of dead nodes have not come back", left)
		}
		time.Sleep(100 * time.Millisecond)
		left = c.partsOf(all[:dying])
	}
	t.Logf("the blocks of %d dead nodes are free after %s", dying, time.Since(died).Round(time.Millisecond))
	if kept := c.partsOf(all[dying:]); kept < nodes-dying {
		t.Errorf("%d of the %d nodes that live have a block yet", kept, nodes-dying)
	}
	for _, n := range all[dying:] {
		stopping.Go(n.stop)
	}
	stopping.Wait()
}

// partsOf counts what the nodes own.
func (c *cluster) partsOf(nodes []*simNode) (n int) {
	owned, err := blocks.Owned(c.Context(), c.store, "")
	if err != nil {
		c.Error(err)
	}
	is := map[string]bool{}
	for _, one := range nodes {
		is[one.name] = true
	}
	for _, part := range owned {
		if is[part.Node] {
			n++
		}
	}
	return n
}
