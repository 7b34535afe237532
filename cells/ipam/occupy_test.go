package ipam_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

// TestOccupy: a held endpoint has its addresses until its Detach, also when their block comes later.
func TestOccupy(t *testing.T) {
	for name, late := range map[string]bool{"the block is there": false, "the block comes later": true} {
		t.Run(name, func(t *testing.T) {
			n := allocator.New(nil)
			n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, Quarantine: time.Minute})
			addBlock := func() {
				if err := n.Pools().Add(allocator.DefaultPool, netip.MustParsePrefix("10.0.0.0/30")); err != nil {
					t.Fatal(err)
				}
			}
			if !late {
				addBlock()
			}
			step := ipam.NewStep(allocator.NewSource(n, nil))
			held := endpoint.Endpoint{Spec: endpointmanagertest.Spec("held:eth0"), Addresses: ipv4("10.0.0.1")}
			held.Spec.Network, held.Spec.Pod = "", endpoint.Pod{} // its link does not say
			if err := step.Occupy(held); err != nil {
				t.Fatal(err)
			}
			if late {
				addBlock()
			}
			if got := n.List(); len(got) != 1 || got[0].Pool != "" {
				t.Errorf("it has %+v, want no pool, as its link does not say which", got)
			}
			given := 0
			for i := range 4 {
				got, err := allocator.NewSource(n, nil).Allocate(t.Context(), allocator.Request{Owner: allocator.Handle(rune('a' + i))})
				if err != nil {
					break
				}
				if given++; got.Addresses == held.Addresses {
					t.Errorf("%v was given out", got.Addresses)
				}
			}
			if given != 3 {
				t.Errorf("%d addresses were given out, want 3 of the block's 4", given)
			}
			if err := step.Detach(context.Background(), held, endpoint.DeleteConfig{}); err != nil {
				t.Fatal(err)
			}
			for _, a := range n.List() {
				if a.Addresses == held.Addresses {
					t.Errorf("it is %s's after its Detach", a.Owner)
				}
			}
		})
	}
}
