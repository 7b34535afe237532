package allocator_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// podCIDR is a node of fixed prefixes that rests addresses for 30 s.
func podCIDR(t testing.TB, prefixes ...string) *allocator.Allocator {
	t.Helper()
	a := allocator.New(nil)
	if err := addSubnets(a, 30*time.Second, prefixes); err != nil {
		t.Fatal(err)
	}
	return a
}

func addSubnets(a *allocator.Allocator, quarantine time.Duration, prefixes []string) error {
	settings := allocator.Settings{Quarantine: quarantine}
	for _, text := range prefixes {
		prefix, err := netip.ParsePrefix(text)
		if err == nil {
			err = a.Pools().AddSubnet(allocator.DefaultPool, prefix)
		}
		if err != nil {
			return err
		}
		settings.IPv4 = settings.IPv4 || prefix.Addr().Is4()
		settings.IPv6 = settings.IPv6 || prefix.Addr().Is6()
	}
	a.Pools().Configure(allocator.DefaultPool, settings)
	return nil
}

// multiPool is a node of the cluster's pools, with IPv4 alone in pool "default", and no block yet.
func multiPool(t testing.TB) *allocator.Allocator {
	t.Helper()
	a := allocator.New(nil)
	a.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, Quarantine: 30 * time.Second})
	return a
}

func ipv4(text string) endpoint.Addresses {
	return endpoint.Addresses{IPv4: netip.MustParseAddr(text)}
}

// get allocates, and returns the IPv4 address as text.
func get(a *allocator.Allocator, owner allocator.Handle) (string, error) {
	got, err := a.Allocate(allocator.Request{Owner: owner})
	return got.Addresses.IPv4.String(), err
}

func wantGot(t *testing.T, a *allocator.Allocator, owner allocator.Handle, want string) {
	t.Helper()
	if got, err := get(a, owner); err != nil || got != want {
		t.Errorf("%s got %s, %v, want %s", owner, got, err, want)
	}
}

func wantFault(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func wantConsistent(t *testing.T, a *allocator.Allocator) {
	t.Helper()
	if faults := allocator.CheckInvariants(a); len(faults) > 0 {
		t.Fatalf("inconsistent: %q", faults)
	}
}

func add(t testing.TB, a *allocator.Allocator, block string) {
	t.Helper()
	if err := a.Pools().Add(allocator.DefaultPool, netip.MustParsePrefix(block)); err != nil {
		t.Fatal(err)
	}
}
