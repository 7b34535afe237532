package blocks_test

import (
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// TestWhatTheStoreLosesIsClaimedAgainByWhoUsesIt: it is restored from a backup that knows of one of two nodes, or begun
// anew. Nodes find out by their signs of life, and keep what they have in use; a new one gets nothing of it.
func TestWhatTheStoreLosesIsClaimedAgainByWhoUsesIt(t *testing.T) {
	for name, back := range map[string]func(*etcdtest.Server, testing.TB){"from a backup": (*etcdtest.Server).SetBack, "to nothing": (*etcdtest.Server).Wipe} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := etcdtest.Start(t, nil)
			cfg := quick()
			cfg.Grace, cfg.GiveBackAfter, cfg.DefaultPool = time.Hour, time.Hour, []string{"10.0.0.0/21"}
			pool := blocks.Pool{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/21")}}
			c := newCluster(t, storetest.Open(t, server.Config()), pool, cfg, 0)
			one := c.node(1)
			defer func() { one.stop() }()
			c.allocateMany(one, 70) // of two blocks
			server.Save(t)
			c.allocateMany(one, 70)
			two := c.node(2)
			defer func() { two.stop() }()
			c.allocateMany(two, 140)
			back(server, t)
			began := time.Now()
			for _, n := range []*simNode{one, two} {
				c.ownsWhatItUses(n)
			}
			t.Logf("claimed again after %s", time.Since(began).Round(time.Millisecond))
			three := c.node(3)
			defer func() { three.stop() }()
			for _, n := range []*simNode{three, one, two} {
				c.allocateMany(n, 60)
			}
		})
	}
}

// TestWhatTheStoreLosesWhileAnAgentIsAwayIsClaimedAgain when it is back, though it does not rely on its memo any more.
func TestWhatTheStoreLosesWhileAnAgentIsAwayIsClaimedAgain(t *testing.T) {
	server := etcdtest.Start(t, nil)
	cfg := quick()
	cfg.Grace, cfg.DefaultPool = 3*time.Second, []string{"10.0.0.0/21"}
	pool := blocks.Pool{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/21")}}
	c := newCluster(t, storetest.Open(t, server.Config()), pool, cfg, 0)
	one := c.node(1)
	c.allocateMany(one, 70)
	one.stop()
	server.Wipe(t)
	one.ahead.Add(int64(time.Hour))
	c.start(one)
	defer func() { one.stop() }()
	c.ownsWhatItUses(one)
}

func (c *cluster) allocateMany(n *simNode, many int) {
	c.Helper()
	for end := time.Now().Add(20 * time.Second); many > 0; {
		if c.allocate(n, time.Second) {
			many--
		} else if time.Now().After(end) {
			c.Fatalf("%s has no address: %+v", n.name, n.local.Usage(""))
		}
	}
}

// ownsWhatItUses waits until the store says that a node owns all addresses that it has in use.
func (c *cluster) ownsWhatItUses(n *simNode) {
	c.Helper()
	var lacking netip.Addr
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		owned, err := blocks.Owned(c.Context(), c.store, n.name)
		lacking = netip.Addr{}
		for _, addr := range n.local.all() {
			if err != nil || ownerOf(owned, addr) != n.name {
				lacking = addr
			}
		}
		if !lacking.IsValid() {
			return
		}
	}
	c.Fatalf("%s is in use by %s, and not its own", lacking, n.name)
}

// TestWhatANodeHadGivenBackIsNotItsAgain when the store is of a time before that: another has it in use.
func TestWhatANodeHadGivenBackIsNotItsAgain(t *testing.T) {
	server := etcdtest.Start(t, nil)
	cfg := quick()
	cfg.Grace = time.Hour
	pool := blocks.Pool{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/25")}} // two blocks
	c := newCluster(t, storetest.Open(t, server.Config()), pool, cfg, 0)
	one := c.node(1)
	defer func() { one.stop() }()
	c.allocateMany(one, 70) // all there is
	server.Save(t)
	for _, addr := range one.local.all() {
		one.local.release(addr, func(addr netip.Addr) { c.free(one, addr) })
	}
	two := c.node(2)
	defer func() { two.stop() }()
	c.allocateMany(two, 60)
	server.SetBack(t)
	c.ownsWhatItUses(two)
	c.allocateMany(one, 60)
}
