package allocator_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

func reserve(t *testing.T, n *allocator.Allocator, owner allocator.Handle, lifetime time.Duration) allocator.Reservation {
	t.Helper()
	got, err := n.Reserve(allocator.Request{Owner: owner}, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestReserveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := podCIDR(t, "10.0.0.0/30") // one address
		got := reserve(t, n, "lost", 0)
		if left := time.Until(got.Expires); left != 10*time.Minute || got.Addresses != ipv4("10.0.0.2") || got.Token == "" {
			t.Errorf("got %+v, over in %s", got, left)
		}
		time.Sleep(10*time.Minute - time.Nanosecond)
		_, err := get(n, "a")
		wantFault(t, "before the end", err, allocator.ErrExhausted)
		time.Sleep(time.Nanosecond)
		if r := n.Usage().Pools[0].Blocks[0]; r.Used != 0 || r.Resting != 1 {
			t.Errorf("%+v, want 1 in quarantine", r)
		}
		time.Sleep(30 * time.Second)
		wantGot(t, n, "a", "10.0.0.2")
		_, err = n.ReleaseReservation(got.Addresses.IPv4, got.Token, nil)
		wantFault(t, "the late release of a lost caller", err, allocator.ErrInUse)
	})
}

func TestUnreserveByToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := podCIDR(t, "10.0.0.0/29", "fd00::/126")
		first := reserve(t, n, "x", time.Minute)
		if _, err := n.ReleaseReservation(first.Addresses.IPv6, first.Token, nil); err != nil { // with all that it has
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want := allocator.Request{Owner: "x", Want: first.Addresses}
		second, err := n.Reserve(want, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.ReleaseReservation(first.Addresses.IPv4, first.Token, nil)
		wantFault(t, "the token of an earlier one", err, allocator.ErrNoReservation)
		_, err = n.Reserve(want, time.Minute)
		wantFault(t, "the same owner again", err, allocator.ErrInUse)
		_, err = get(n, "x")
		wantFault(t, "an endpoint of that handle", err, allocator.ErrInUse)
		if _, err := n.ReleaseReservation(second.Addresses.IPv4, "", nil); err != nil { // an operator
			t.Error(err)
		}
		_, err = n.ReleaseReservation(second.Addresses.IPv4, "", nil)
		wantFault(t, "what is nobody's", err, allocator.ErrNoOwner)
	})
}

func TestAllocateTakesOverReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := podCIDR(t, "10.0.0.0/29")
		got := reserve(t, n, "x", time.Minute)
		req := allocator.Request{Owner: "porin.c1.eth0", Want: ipv4("10.0.0.5"), Reservation: got.Token}
		_, err := n.Allocate(req)
		wantFault(t, "another address", err, allocator.ErrInUse)
		req.Want = endpoint.Addresses{}
		for range 2 {
			has, err := n.Allocate(req)
			if err != nil || has.Addresses != got.Addresses || !has.Expires.IsZero() {
				t.Errorf("got %+v, %v", has, err)
			}
		}
		req.Owner = "porin.c2.eth0"
		_, err = n.Allocate(req)
		wantFault(t, "a second endpoint", err, allocator.ErrNoReservation)
		time.Sleep(time.Hour)
		if used := n.Usage().Pools[0].Blocks[0].Used; used != 1 {
			t.Errorf("%d in use after the reservation's time, want the endpoint's", used)
		}
		_, err = n.ReleaseReservation(got.Addresses.IPv4, "", nil)
		wantFault(t, "an address that an endpoint uses", err, allocator.ErrInUse)
	})
}

func TestReserveEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := podCIDR(t, "10.0.0.0/29")
		for owner, lifetime := range map[allocator.Handle]time.Duration{"a": 3 * time.Minute, "b": time.Minute, "c": 2 * time.Minute} {
			reserve(t, n, owner, lifetime)
		}
		for left := int64(3); left >= 0; left-- {
			if used := n.Usage().Pools[0].Blocks[0].Used; used != left {
				t.Errorf("%d in use, want %d", used, left)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestReserveRefusesBadRequests(t *testing.T) {
	n := podCIDR(t, "10.0.0.0/29")
	for name, row := range map[string]struct {
		req      allocator.Request
		lifetime time.Duration
	}{
		"no owner":     {allocator.Request{}, 0},
		"odd owner":    {allocator.Request{Owner: "a\x1b"}, 0},
		"too long":     {allocator.Request{Owner: "a"}, time.Hour + 1},
		"negative":     {allocator.Request{Owner: "a"}, -1},
		"no such pool": {allocator.Request{Owner: "a", Pool: "blue"}, 0},
	} {
		if _, err := n.Reserve(row.req, row.lifetime); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
	if used := n.Usage().Pools[0].Blocks[0].Used; used != 0 {
		t.Errorf("%d in use", used)
	}
}

func TestUnreserveKept(t *testing.T) {
	n := podCIDR(t, "10.0.0.0/29")
	wantGot(t, n, "porin.c1.eth0", "10.0.0.2")
	n.Keep("porin.c1.eth0")
	if _, err := n.ReleaseReservation(netip.MustParseAddr("10.0.0.2"), "", nil); err != nil {
		t.Error(err)
	}
}
