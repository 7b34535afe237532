package blocks_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
)

// calm is a node to which nothing happens but what it is asked for.
func calm() blocks.Config {
	cfg := quick()
	cfg.Interval, cfg.PreAllocate, cfg.Grace, cfg.LeaseTTL = 10*time.Second, 1, 100*time.Hour, time.Minute
	return cfg
}

// TestABlockIsClaimedForAnAddress that somebody wants, if nobody has it.
func TestABlockIsClaimedForAnAddress(t *testing.T) {
	c := newCluster(t, storetest.New(t), small, calm(), 0)
	one, two := c.node(1), c.node(2)
	defer one.stop()
	defer two.stop()
	wanted := netip.MustParseAddr("10.0.2.35")
	if err := one.manager.More(t.Context(), "default", wanted); err != nil {
		t.Fatal(err)
	}
	owned, err := blocks.Owned(t.Context(), c.store, "node-1")
	if has := ownerOf(owned, wanted); has != "node-1" || err != nil {
		t.Errorf("%s is %q's, %v: %v", wanted, has, err, owned)
	}
	err = two.manager.More(t.Context(), "default", wanted)
	if err == nil || !strings.Contains(err.Error(), "which node node-1 has") {
		t.Errorf("the other node: error %v, want one that names the owner", err)
	}
	if err := two.manager.More(t.Context(), "default", netip.MustParseAddr("192.0.2.1")); err != nil {
		t.Errorf("an address of no pool is the allocator's to refuse: %v", err)
	}
}

// hung is a store that answers nothing for as long as it hangs, as an etcd whose process is stopped.
type hung struct {
	store.Store
	hangs atomic.Bool
}

func (h *hung) Create(ctx context.Context, key string, value []byte, l store.Lease) (int64, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return h.Store.Create(ctx, key, value, l)
}

// TestWhoeverAsksHearsThatTheStoreHangs, and not that others have all there is.
func TestWhoeverAsksHearsThatTheStoreHangs(t *testing.T) {
	s := &hung{Store: storetest.New(t)}
	c := newCluster(t, s, small, calm(), 0)
	n := c.node(1)
	defer n.stop()
	for range 16 {
		if !c.allocate(n, patience) {
			t.Fatal("no address")
		}
	}
	s.hangs.Store(true)
	if err := n.manager.More(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("error %v", err)
	}
}

func ownerOf(parts []blocks.Part, addr netip.Addr) string {
	for _, p := range parts {
		if p.Prefix.Contains(addr) {
			return p.Node
		}
	}
	return ""
}

// TestWhoeverAsksHearsWhyThereIsNothing at once, and not when its patience ends.
func TestWhoeverAsksHearsWhyThereIsNothing(t *testing.T) {
	c := newCluster(t, storetest.New(t), small, calm(), 0)
	for _, p := range []blocks.Pool{
		{Name: "off", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Disabled: true},
		{Name: "far", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24")}, NodeSelector: map[string]string{"zone": "b"}},
	} {
		if _, err := blocks.NewPools(c.store).Put(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	n := c.node(1)
	defer n.stop()
	for pool, want := range map[string]string{"off": "pool off is disabled", "far": "for nodes with zone=b", "none": ""} {
		err := n.manager.More(t.Context(), pool)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("pool %s: error %v, want %q", pool, err, want)
		}
	}
	n.network.cutOff()
	defer n.network.heal()
	n.network.loseLeases()
	if err := n.manager.More(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("cut off: error %v", err)
	}
}

// TestANodeFindsWhatItHasFromBeforeABoot when it looks at everything, and when somebody wants an address of that.
func TestANodeFindsWhatItHasFromBeforeABoot(t *testing.T) {
	for what, find := range map[string]func(*simNode, netip.Addr) error{
		"a look":    func(n *simNode, _ netip.Addr) error { return n.manager.Recheck(t.Context()) },
		"an answer": func(n *simNode, addr netip.Addr) error { return n.manager.More(t.Context(), "default", addr) },
	} {
		c := newCluster(t, storetest.New(t), small, calm(), 0)
		first := c.node(1)
		if !c.allocate(first, patience) {
			t.Fatal("no address")
		}
		first.stop()
		had, err := blocks.Owned(t.Context(), c.store, "node-1")
		if err != nil || len(had) != 1 {
			t.Fatalf("%v, %v", had, err)
		}
		c.forget(first)
		c.dir = t.TempDir() // its memo ends with the boot, and its lease meanwhile
		first.network.loseLeases()
		again := c.node(1)
		if err := find(again, had[0].Prefix.Addr()); err != nil {
			t.Error(err)
		}
		has := func(u blocks.Usage) bool { return u.Block == had[0].Prefix && !u.Drained }
		if usage := again.local.Usage("default"); !slices.ContainsFunc(usage, has) {
			t.Errorf("after %s it gives out from %v, and had %v", what, usage, had)
		}
		again.stop()
	}
}

// TestAFullPoolsBlocksAreGivenUp by a node that does not need all it has, for one that has none: halves, and no more than
// is wanted.
func TestAFullPoolsBlocksAreGivenUp(t *testing.T) {
	pool := blocks.Pool{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}, IPv4BlockBits: 28}
	c := newCluster(t, storetest.New(t), pool, calm(), 0)
	one, two := c.node(1), c.node(2)
	defer one.stop()
	defer two.stop()
	for range 4 {
		if !c.allocate(one, patience) {
			t.Fatal("no address")
		}
	}
	if !c.allocate(two, patience) {
		t.Fatal("the second node got nothing, though the first one uses 4 of 16")
	}
	owned, err := blocks.Owned(t.Context(), c.store, "")
	if err != nil || len(owned) != 2 || owned[0].Node == owned[1].Node {
		t.Errorf("the block is owned by %v, %v", owned, err)
	}
}
