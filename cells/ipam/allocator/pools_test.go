package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
)

func remove(n *allocator.Allocator, block string) error {
	return n.Pools().Remove(allocator.DefaultPool, netip.MustParsePrefix(block))
}

func wantBlocks(t *testing.T, n *allocator.Allocator, what string, want ...string) {
	t.Helper()
	got := []string{}
	for _, u := range n.Pools().Blocks(allocator.DefaultPool) {
		got = append(got, u.Prefix.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: blocks (-want +got):\n%s", what, diff)
	}
}

func TestAddGivesEveryAddress(t *testing.T) {
	n := multiPool(t)
	add(t, n, "10.0.0.0/30")
	add(t, n, "10.0.0.0/30")
	for _, want := range []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		wantGot(t, n, allocator.Handle(want), want)
	}
	_, err := get(n, "e")
	wantFault(t, "a fifth", err, allocator.ErrExhausted)
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := multiPool(t)
		add(t, n, "10.0.0.0/30")
		wantGot(t, n, "a", "10.0.0.0")
		wantGot(t, n, "b", "10.0.0.1")
		n.Release("a")
		time.Sleep(time.Minute) // .0 has rested
		n.Pools().Drain(allocator.DefaultPool, netip.MustParsePrefix("10.0.0.0/30"))
		_, err := get(n, "c")
		wantFault(t, "drained", err, allocator.ErrExhausted)
		_, err = n.Allocate(allocator.Request{Owner: "c", Want: ipv4("10.0.0.3")})
		wantFault(t, "by name", err, allocator.ErrOutside)
		wantFault(t, "in use", remove(n, "10.0.0.0/30"), allocator.ErrBlockInUse)
		n.Release("b")
		wantFault(t, "resting", remove(n, "10.0.0.0/30"), allocator.ErrBlockInUse)
		time.Sleep(time.Minute)
		add(t, n, "10.0.0.0/30") // is drained no longer
		wantGot(t, n, "c", "10.0.0.2")
		wantGot(t, n, "d", "10.0.0.3")
		wantGot(t, n, "e", "10.0.0.0")
		wantGot(t, n, "f", "10.0.0.1")
	})
}

func TestAddOverlap(t *testing.T) {
	n := multiPool(t)
	add(t, n, "10.0.0.0/28")
	for _, row := range []struct{ pool, block string }{
		{"blue", "10.0.0.0/28"}, {"blue", "10.0.0.0/24"}, {"blue", "10.0.0.0/30"}, {allocator.DefaultPool, "10.0.0.0/30"},
		{allocator.DefaultPool, "10.1.0.0/15"}, {allocator.DefaultPool, "10.2.0.0/15"},
	} {
		if err := n.Pools().Add(row.pool, netip.MustParsePrefix(row.block)); err == nil {
			t.Errorf("%s was added to pool %s", row.block, row.pool)
		}
	}
	wantBlocks(t, n, "as before", "10.0.0.0/28")
}

// TestAddAfterAdopt is in use or rests when the block comes, as after a restart with the store away.
func TestAddAfterAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := multiPool(t)
		n.Quarantine(netip.MustParseAddr("10.0.0.1"), time.Now().Add(-10*time.Second))
		for owner, addr := range map[allocator.Handle]string{"a": "10.0.0.0", "b": "10.0.0.2"} {
			if err := n.Adopt(allocator.Allocation{Owner: owner, Addresses: ipv4(addr)}); err != nil {
				t.Fatal(err)
			}
		}
		n.Release("b")
		add(t, n, "10.0.0.0/30")
		if u := n.Pools().Blocks(allocator.DefaultPool)[0]; u.Used != 1 || u.Resting != 2 {
			t.Errorf("%+v, want 1 in use and 2 resting", u)
		}
		wantGot(t, n, "c", "10.0.0.3")
		time.Sleep(20 * time.Second)
		wantGot(t, n, "d", "10.0.0.1")
		_, err := get(n, "e")
		wantFault(t, "10.0.0.2 rests", err, allocator.ErrExhausted)
	})
}

// refiller is one whose answers do not depend on who asks.
type refiller func(pool string) error

// Refill implements [allocator.Refiller].
func (r refiller) Refill(_ context.Context, pool string, _ ...netip.Addr) error { return r(pool) }

// TestRefill asks for more when nothing is free, and again, a few times, when others were quicker.
func TestRefill(t *testing.T) {
	n := multiPool(t)
	asked, errNoMore := 0, errors.New("the cluster has none")
	source := allocator.NewSource(n, refiller(func(pool string) error {
		asked++
		switch {
		case pool != allocator.DefaultPool:
			t.Errorf("asked for pool %q", pool)
		case asked == 1:
			add(t, n, "10.0.0.0/30")
		case asked == 6:
			return errNoMore
		}
		return nil
	}))
	for _, owner := range []allocator.Handle{"a", "b", "c", "d"} {
		if _, err := source.Allocate(t.Context(), allocator.Request{Owner: owner}); err != nil {
			t.Error(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	_, err := source.Allocate(t.Context(), allocator.Request{Owner: "e"})
	wantFault(t, "there was no more", err, allocator.ErrExhausted)
	_, err = source.Allocate(t.Context(), allocator.Request{Owner: "e"})
	wantFault(t, "and there will be none", err, errNoMore)
	wantFault(t, "and there will be none", err, allocator.ErrExhausted)
	if asked != 6 {
		t.Errorf("asked %d times, want four times in vain, and once more", asked)
	}
}

// TestAllocateBothFamiliesOrNone of what a pool of both families has, though this node has a block of one family only.
func TestAllocateBothFamiliesOrNone(t *testing.T) {
	n := multiPool(t)
	n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, IPv6: true})
	add(t, n, "10.0.0.0/30")
	_, err := get(n, "a")
	wantFault(t, "without a block of IPv6", err, allocator.ErrExhausted)
	add(t, n, "fd00::/122")
	got, err := n.Allocate(allocator.Request{Owner: "a"})
	want := endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.0"), IPv6: netip.MustParseAddr("fd00::")}
	if err != nil || got.Addresses != want {
		t.Errorf("got %v, %v", got.Addresses, err)
	}
}

func TestUnknownPool(t *testing.T) {
	n := multiPool(t)
	n.Pools().Configure("blue", allocator.Settings{IPv4: true})
	_, err := n.Allocate(allocator.Request{Owner: "a", Pool: "green"})
	wantFault(t, "green", err, allocator.ErrUnknownPool)
	if want := `allocate for a: pool "green": no such pool: the pools are: blue, default`; err.Error() != want {
		t.Errorf("%s, want %s", err, want)
	}
	n.Pools().Configure("green", allocator.Settings{IPv4: true})
	n.Pools().DeletePool("green")
	n.Pools().DeletePool("blue")
	n.Pools().DeletePool(allocator.DefaultPool)
	if pools := n.Usage().Pools; len(pools) > 0 {
		t.Errorf("pools are left: %v", pools)
	}
}

// TestLowWatermark each time that it comes to that, so that more is there before anybody waits for it.
func TestLowWatermark(t *testing.T) {
	n, told := multiPool(t), 0
	n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, LowWatermark: 3})
	get := func(owner allocator.Handle) error {
		_, err := n.Allocate(allocator.Request{Owner: owner})
		select {
		case <-n.Pools().Low():
			told++
		default:
		}
		return err
	}
	add(t, n, "10.0.0.0/29")
	for i, want := range []int{0, 0, 0, 0, 0, 1, 1} { // of eight: with the sixth two are left
		if err := get(allocator.Handle(rune('a' + i))); err != nil || told != want {
			t.Errorf("address %d: told %d times, want %d, %v", i+1, told, want, err)
		}
	}
	add(t, n, "10.0.1.0/30")
	for i, want := range []int{1, 1, 2} { // of five
		if err := get(allocator.Handle(rune('p' + i))); err != nil || told != want {
			t.Errorf("address %d of another block: told %d times, want %d, %v", i+1, told, want, err)
		}
	}
}

// TestAllocateRefillFails has an error tell what is missing on the node, why there is no more, and what to do about
// that.
func TestAllocateRefillFails(t *testing.T) {
	away := fault.WithHint(fault.New(fault.Unavailable, "the store is away"), "find it")
	full := fault.WithHint(fault.New(fault.Exhausted, "pool default is full"), "make it larger")
	used := "pool default: no free address: 10.0.0.0/30 has 4, of which 4 in use and 0 in quarantine"
	for name, c := range map[string]struct {
		refill error
		pool   string
		want   endpoint.Addresses
		block  bool // a block, all addresses in use
		text   string
		hint   string
	}{
		"unknown pool":           {away, "blue", endpoint.Addresses{}, false, `pool "blue" is not known yet: the store is away`, "find it"},
		"no block, store away":   {away, "", endpoint.Addresses{}, false, "pool default: no block of it can be claimed: the store is away", "find it"},
		"block used, store away": {away, "", endpoint.Addresses{}, true, used + "; no further block can be claimed: the store is away", "find it"},
		"address, store away":    {away, "", ipv4("10.0.9.9"), false, "pool default: the block of [10.0.9.9] cannot be claimed: the store is away", "find it"},
		"no block, pool full":    {full, "", endpoint.Addresses{}, false, "pool default is full", "make it larger"},
		"block used, pool full":  {full, "", endpoint.Addresses{}, true, used + "; pool default is full", "make it larger"},
		"nothing to say":         {nil, "", endpoint.Addresses{}, true, used, "remove pods from this node, or give it more addresses"},
	} {
		n := multiPool(t)
		if c.block {
			add(t, n, "10.0.0.0/30")
			for i, owner := range []allocator.Handle{"w", "x", "y", "z"} {
				wantGot(t, n, owner, fmt.Sprintf("10.0.0.%d", i))
			}
		}
		source := allocator.NewSource(n, refiller(func(string) error { return c.refill }))
		_, err := source.Allocate(t.Context(), allocator.Request{Owner: "a", Pool: c.pool, Want: c.want})
		hint, _ := fault.HintOf(err)
		if err == nil || err.Error() != "allocate for a: "+c.text || hint != c.hint {
			t.Errorf("%s: error %v, hint %q, want %q, %q", name, err, hint, c.text, c.hint)
		}
		if c.refill != nil && !c.block && fault.KindOf(err) != fault.KindOf(c.refill) {
			t.Errorf("%s: %v is %s, want %s", name, err, fault.KindOf(err), fault.KindOf(c.refill))
		}
	}
}
