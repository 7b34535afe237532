package localblocks_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/ipam/localblocks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheAllocatorIsWhatBlocksAreGivenTo(t *testing.T) {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	n, err := ipam.NewNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	local, block := localblocks.New(n.MultiPool), netip.MustParsePrefix("10.0.0.0/26")
	pool := blocks.Pool{Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, Quarantine: time.Minute}
	local.Configure(pool)
	local.Until(1 << 62)
	if err := local.Add(pool.Name, block); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Allocator.Allocate(t.Context(), ipam.Request{Owner: "a", Pool: pool.Name}); err != nil {
		t.Fatal(err)
	}
	want := []blocks.Usage{{Block: block, Capacity: 64, Used: 1}}
	if diff := cmp.Diff(want, local.Usage(pool.Name), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if err := local.Remove(pool.Name, block); !errors.Is(err, blocks.ErrInUse) {
		t.Errorf("error %v, want %v", err, blocks.ErrInUse)
	}
}

func TestTheFamiliesOfAPoolAreThoseOfItsPrefixes(t *testing.T) {
	both := blocks.Pool{
		Prefixes:   []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/64")},
		Quarantine: time.Second, ReuseResting: true,
	}
	want := ipam.Settings{IPv4: true, IPv6: true, Quarantine: time.Second, ReuseResting: true}
	if got := localblocks.SettingsOf(both); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
