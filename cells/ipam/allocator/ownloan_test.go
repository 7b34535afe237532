package allocator_test

import (
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// Who has taken over its own permanent reservation gets the same again, with the token and without, as in a repeated ADD.
func TestOwnReservationTwice(t *testing.T) {
	a := allocator.New(nil)
	a.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, Quarantine: time.Minute})
	if err := a.Pools().AddSubnet(allocator.DefaultPool, netip.MustParsePrefix("10.0.0.0/28")); err != nil {
		t.Fatal(err)
	}
	s := allocator.NewSource(a, nil)
	owner := allocator.NewHandle("net", endpoint.Attachment{ContainerID: "c1", IfName: "eth0"})
	reserved, err := s.Reserve(t.Context(), allocator.Request{Owner: owner}, allocator.Permanent)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{reserved.Token, reserved.Token, ""} {
		got, err := s.Allocate(t.Context(), allocator.Request{Owner: owner, Reservation: token})
		if err != nil || got.Addresses != reserved.Addresses {
			t.Errorf("with token %q: %v, error %v, want %v", token, got.Addresses, err, reserved.Addresses)
		}
	}
	if err := a.Adopt(allocator.Allocation{Owner: owner, Addresses: reserved.Addresses}); err != nil {
		t.Error(err)
	}
}
