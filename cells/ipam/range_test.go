package ipam

import (
	"net/netip"
	"testing"
	"time"
)

func TestAnAddressThatIsAlwaysAskedForByNameCostsNoMemory(t *testing.T) {
	r, err := newRange(netip.MustParsePrefix("10.0.0.0/24"), 0)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("10.0.0.77")
	for range 10_000 {
		if err := r.take(addr, time.Now()); err != nil {
			t.Fatal(err)
		}
		r.release(addr, time.Now())
		if err := r.take(addr, time.Now()); err != nil {
			t.Fatal(err)
		}
		r.giveBack(addr)
	}
	if len(r.queue) > 4 {
		t.Errorf("%d entries for one address", len(r.queue))
	}
}
