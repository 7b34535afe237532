package allocator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/ipam/allocator"
)

func TestCleanupBeforeAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, woken := podCIDR(t, "10.0.0.0/30"), 0 // one address
		cleanup := n.Cleanup(func() { woken++ })
		wantGot(t, n, "a", "10.0.0.2")
		n.Release("a")
		if woken != 1 {
			t.Errorf("woken %d times, want once", woken)
		}
		time.Sleep(time.Hour)
		_, err := get(n, "b")
		wantFault(t, "before the cleanup", err, allocator.ErrExhausted)
		cleanup.Done(cleanup.Pending())
		wantGot(t, n, "b", "10.0.0.2")
		if left := cleanup.Pending(); len(left) > 0 {
			t.Errorf("pending: %v", left)
		}
	})
}

// TestCleanupOfEarlierRelease: the address is used and released again during a cleanup.
func TestCleanupOfEarlierRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := podCIDR(t, "10.0.0.0/30")
		cleanup := n.Cleanup(func() {})
		wantGot(t, n, "a", "10.0.0.2")
		n.Release("a")
		batch := cleanup.Pending()
		if err := n.Adopt(allocator.Allocation{Owner: "b", Addresses: ipv4("10.0.0.2")}); err != nil {
			t.Fatal(err)
		}
		n.Release("b")
		cleanup.Done(batch)
		time.Sleep(time.Hour)
		_, err := get(n, "c")
		wantFault(t, "the later release is not cleaned up", err, allocator.ErrExhausted)
		wantConsistent(t, n)
	})
}

// TestCleanupOutsideBlocks: an address whose block is gone is cleaned up, too, and known when its block comes.
func TestCleanupOutsideBlocks(t *testing.T) {
	n := multiPool(t)
	cleanup := n.Cleanup(func() {})
	if err := n.Adopt(allocator.Allocation{Owner: "a", Addresses: ipv4("10.0.0.1")}); err != nil {
		t.Fatal(err)
	}
	n.Release("a")
	batch := cleanup.Pending()
	if len(batch) != 1 || batch[0].Addr.String() != "10.0.0.1" {
		t.Fatalf("pending: %v", batch)
	}
	add(t, n, "10.0.0.0/31")
	cleanup.Done(batch)
	wantConsistent(t, n)
	if b := n.Pools().Blocks(allocator.DefaultPool)[0]; b.Resting != 1 || len(cleanup.Pending()) != 0 {
		t.Errorf("%+v, pending %v", b, cleanup.Pending())
	}
}
