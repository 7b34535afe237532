package allocator_test

import (
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// TestAllocateOwnReservation: an owner that has reserved permanently for itself gets its addresses by the token, and
// with no other call.
func TestAllocateOwnReservation(t *testing.T) {
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
	for range 2 {
		got, err := s.Allocate(t.Context(), allocator.Request{Owner: owner, Reservation: reserved.Token})
		if err != nil || got.Addresses != reserved.Addresses {
			t.Errorf("with the token: %v, error %v, want %v", got.Addresses, err, reserved.Addresses)
		}
	}
	_, err = s.Allocate(t.Context(), allocator.Request{Owner: owner})
	wantFault(t, "without the token", err, allocator.ErrInUse)
	if err := a.Adopt(allocator.Allocation{Owner: owner, Addresses: reserved.Addresses}); err != nil {
		t.Error(err)
	}
}
