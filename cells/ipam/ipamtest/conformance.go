package ipamtest

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
)

// TestStep holds addresses to other cells' expectations of ipam, besides [endpointtest.TestStep]. open returns the
// addresses of the prefixes, none given out.
func TestStep(t *testing.T, open func(t testing.TB, prefixes ...string) Addresses) {
	// Ranges for benchmarks (RFC 2544, RFC 5180): without root the module sees the addresses of the machine, which may
	// have private ones.
	for name, test := range map[string]func(*testing.T, Addresses){
		"both families": testBothFamilies, "requested": testRequested, "exhausted": testExhausted, "kept": testKept,
		"restored": testRestored, "external": testExternal, "unknown pool": testUnknownPool,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, "198.18.0.0/29", "2001:2::/125")) })
	}
	t.Run("conformance", func(t *testing.T) {
		endpointtest.TestStep(t, func(t *testing.T) endpointtest.Subject {
			var addresses Addresses
			restart := func(t testing.TB) endpoint.Step {
				addresses = open(t, "198.18.0.0/26", "2001:2::/122")
				return addresses.Step
			}
			return endpointtest.Subject{
				Step: restart(t), Restart: restart,
				Has: func(_ testing.TB, ep endpoint.Endpoint) bool { return addresses.owned(ep) },
			}
		})
	})
}

// owned reports whether the endpoint has an address.
func (a Addresses) owned(ep endpoint.Endpoint) bool {
	handle := allocator.NewHandle(ep.Spec.Network, ep.Spec.Attachment)
	return slices.ContainsFunc(a.Allocator.List(), func(given allocator.Allocation) bool { return given.Owner == handle })
}

func attach(t *testing.T, a Addresses, ep endpoint.Endpoint) endpoint.Endpoint {
	t.Helper()
	ep, err := a.Attach(t.Context(), ep, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

func refused(t *testing.T, a Addresses, ep endpoint.Endpoint, want fault.Kind) {
	t.Helper()
	if _, err := a.Attach(t.Context(), ep, nil); err == nil || fault.KindOf(err) != want {
		t.Errorf("attach %s: error %v, want one of kind %s", ep.Spec.Attachment, err, want)
	}
}

func testBothFamilies(t *testing.T, a Addresses) {
	one, two := attach(t, a, endpointtest.Endpoint(1)), attach(t, a, endpointtest.Endpoint(2))
	for _, ep := range []endpoint.Endpoint{one, two} {
		if !ep.Addresses.IPv4.Is4() || !ep.Addresses.IPv6.Is6() || ep.Pool != allocator.DefaultPool {
			t.Errorf("%s has %v of pool %q", ep.Spec.Attachment, ep.Addresses, ep.Pool)
		}
	}
	if one.Addresses.IPv4 == two.Addresses.IPv4 || one.Addresses.IPv6 == two.Addresses.IPv6 {
		t.Errorf("both have %v and %v", one.Addresses, two.Addresses)
	}
}

func testRequested(t *testing.T, a Addresses) {
	one, two, outside := endpointtest.Endpoint(1), endpointtest.Endpoint(2), endpointtest.Endpoint(3)
	one.Spec.Requested.IPv4 = netip.MustParseAddr("198.18.0.3")
	two.Spec.Requested = one.Spec.Requested
	outside.Spec.Requested.IPv4 = netip.MustParseAddr("192.0.2.1")
	if got := attach(t, a, one); got.Addresses.IPv4 != one.Spec.Requested.IPv4 || !got.Addresses.IPv6.IsValid() {
		t.Errorf("got %v, want %s and any of IPv6", got.Addresses, one.Spec.Requested.IPv4)
	}
	refused(t, a, two, fault.Conflict)
	refused(t, a, outside, fault.Invalid)
}

func testExhausted(t *testing.T, a Addresses) {
	given := 0
	for ; given < 8; given++ {
		if _, err := a.Attach(t.Context(), endpointtest.Endpoint(1+given), nil); err != nil {
			break
		}
	}
	if given < 4 {
		t.Errorf("%d endpoints got an address of 198.18.0.0/29", given)
	}
	refused(t, a, endpointtest.Endpoint(20), fault.Exhausted)
	if a.owned(endpointtest.Endpoint(20)) {
		t.Error("the endpoint that was refused has an address of one family")
	}
}

// testKept has an address that a deletion does not release.
func testKept(t *testing.T, a Addresses) {
	ep := attach(t, a, endpointtest.Endpoint(1))
	if err := a.Detach(t.Context(), ep, endpoint.DeleteConfig{NoIPRelease: true}); err != nil {
		t.Error(err)
	}
	other := endpointtest.Endpoint(2)
	other.Spec.Requested = ep.Addresses
	refused(t, a, other, fault.Conflict)
}

func testRestored(t *testing.T, a Addresses) {
	ep := endpointtest.Endpoint(1)
	ep.Addresses.IPv4 = netip.MustParseAddr("198.18.0.2")
	if _, err := a.Restore(t.Context(), ep); err != nil {
		t.Error(err)
	}
	other := endpointtest.Endpoint(2)
	other.Addresses = ep.Addresses
	if _, err := a.Restore(t.Context(), other); !errors.Is(err, endpointmanager.ErrAddressNotTaken) {
		t.Errorf("restore with an address of another endpoint: error %v, want %v", err, endpointmanager.ErrAddressNotTaken)
	}
}

// testExternal is of an address that another IPAM gave: it is taken as it is, and never given to others meanwhile.
func testExternal(t *testing.T, a Addresses) {
	ep := endpointtest.Endpoint(1)
	ep.Spec.ExternalIPAM, ep.Spec.Requested.IPv4 = true, netip.MustParseAddr("198.18.0.2")
	if got := attach(t, a, ep); got.Addresses != ep.Spec.Requested {
		t.Errorf("got %v, want %v", got.Addresses, ep.Spec.Requested)
	}
	other := endpointtest.Endpoint(2)
	other.Spec.Requested = ep.Spec.Requested
	refused(t, a, other, fault.Conflict)
}

func testUnknownPool(t *testing.T, a Addresses) {
	ep := endpointtest.Endpoint(1)
	ep.Spec.Pool = "red"
	refused(t, a, ep, fault.Invalid)
}
