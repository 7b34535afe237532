package ipam_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam"
)

// names is a Namer that is told what is named.
type names struct {
	meanwhile func() // happens while it looks; nil is nothing

	mu      sync.Mutex // guards the fields below
	named   map[netip.Addr]bool
	cleared map[netip.Addr]time.Time // when it was last answered that nobody names it
	asked   int                      // how many questions
}

func newNames() *names {
	return &names{named: map[netip.Addr]bool{}, cleared: map[netip.Addr]time.Time{}}
}

func (n *names) Named(_ context.Context, addrs []netip.Addr) (named []netip.Addr) {
	if n.meanwhile != nil {
		n.meanwhile()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	for _, addr := range addrs {
		if n.named[addr] {
			named = append(named, addr)
		} else {
			n.cleared[addr] = time.Now()
		}
	}
	return named
}

func (n *names) questions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *names) set(addr string, named bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.named[netip.MustParseAddr(addr)] = named
}

// podCIDR is a node of fixed prefixes that rests addresses for 30 s.
func podCIDR(t *testing.T, quiet ipam.Namer, prefixes ...string) ipam.Node {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = prefixes
	return node(t, cfg, quiet)
}

// multiPool is a node of the cluster's pools, with IPv4 alone in pool "default", and no block yet.
func multiPool(t *testing.T, quiet ipam.Namer) ipam.Node {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	n := node(t, cfg, quiet)
	n.MultiPool.Configure(ipam.DefaultPool, ipam.Settings{IPv4: true, Quarantine: 30 * time.Second})
	n.MultiPool.Until(forever)
	return n
}

// forever is later than any boot clock.
const forever = 1 << 62

func node(t *testing.T, cfg ipam.Config, quiet ipam.Namer) ipam.Node {
	t.Helper()
	var all []ipam.Namer
	if quiet != nil {
		all = append(all, quiet)
	}
	n, err := ipam.NewNode(cfg, all...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// get allocates, and returns the IPv4 address as text.
func get(n ipam.Node, owner ipam.Handle) (string, error) {
	got, err := n.Allocator.Allocate(context.Background(), ipam.Request{Owner: owner})
	return got.Addresses.IPv4.String(), err
}

func wantGot(t *testing.T, n ipam.Node, owner ipam.Handle, want string) {
	t.Helper()
	if got, err := get(n, owner); err != nil || got != want {
		t.Errorf("%s got %s, %v, want %s", owner, got, err, want)
	}
}

func wantFault(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func add(t *testing.T, n ipam.Node, block string) {
	t.Helper()
	if err := n.MultiPool.Add(ipam.DefaultPool, netip.MustParsePrefix(block)); err != nil {
		t.Fatal(err)
	}
}
