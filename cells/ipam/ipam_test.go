package ipam_test

import (
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

func TestNewAllFaults(t *testing.T) {
	for name, row := range map[string]struct {
		prefixes   []string
		quarantine time.Duration
		want       []string
	}{
		"prefixes": {[]string{"10.0.0.5/24", "10.1.0.0/16", "10.1.2.0/24", "10.9.9.9/32", "nonsense", "ff02::/64"}, 0, []string{
			"bits behind the prefix: want 10.0.0.0/24", "it overlaps 10.1.0.0/16", "want /30 or larger", "want a prefix such as", "unicast",
		}},
		"none":       {nil, 0, []string{"ipam-pod-cidr: want one prefix or more"}},
		"quarantine": {[]string{"10.0.0.0/24"}, 21 * time.Minute, []string{"ipam-quarantine 21m0s: want 0 to 20m0s"}},
	} {
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs, cfg.Quarantine = row.prefixes, row.quarantine
		_, err := ipam.New(cfg, nil)
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", name, err, want)
			}
		}
	}
}

func TestModeDelegated(t *testing.T) {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeDelegated
	a, err := ipam.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []endpoint.Addresses{{}, ipv4("10.0.0.7")} {
		_, err = ipam.NewSource(cfg, a, nil).Allocate(t.Context(), allocator.Request{Owner: "a", Want: want})
		wantFault(t, "an address of ours", err, ipam.ErrDelegated)
	}
	foreign := allocator.Allocation{Owner: "a", External: true, Addresses: ipv4("192.0.2.7")}
	if err := a.Adopt(foreign); err != nil {
		t.Error(err)
	}
	foreign.Owner = "b"
	wantFault(t, "the same address twice", a.Adopt(foreign), allocator.ErrInUse)
	a.Release("a")
	if err := a.Adopt(foreign); err != nil {
		t.Errorf("after its release: %v", err)
	}
}
