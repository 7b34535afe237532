package ipam_test

import (
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/ipam"
)

func TestAnAddressThatIsStillNamedRestsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, "10.0.0.0/29") // five addresses
		for _, owner := range []ipam.Handle{"a", "b", "c", "d", "e"} {
			if _, err := get(n, owner); err != nil {
				t.Fatal(err)
			}
		}
		if who.asked != 0 {
			t.Errorf("asked %d times about addresses that nobody had", who.asked)
		}
		n.Allocator.Release("a") // .2
		n.Allocator.Release("b") // .3
		who.set("10.0.0.2", true)
		time.Sleep(30 * time.Second)
		wantGot(t, n, "f", "10.0.0.3")
		_, err := get(n, "g")
		wantFault(t, "the one that is named", err, ipam.ErrExhausted)
		if r := n.Allocator.Usage().Pools[0].Ranges[0]; r.Used != 4 || r.Quarantined != 1 {
			t.Errorf("%+v, want 4 used and 1 in quarantine", r)
		}
		time.Sleep(time.Nanosecond)
		who.set("10.0.0.2", false)
		wantGot(t, n, "g", "10.0.0.2") // without waiting, as there is no other
	})
}

func TestNobodyNamesAnAddressForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, "10.0.0.0/30") // one address
		who.set("10.0.0.2", true)
		wantGot(t, n, "a", "10.0.0.2")
		n.Allocator.Release("a")
		released := time.Now()
		for {
			time.Sleep(10 * time.Second)
			if _, err := get(n, "b"); err == nil {
				break
			}
			if time.Since(released) > 20*time.Minute {
				t.Fatal("it is still held after 20 minutes")
			}
		}
		if rested := time.Since(released); rested < 19*time.Minute {
			t.Errorf("it rested for %s", rested)
		}
	})
}

func TestAnAddressThatIsWantedAndNamedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, "10.0.0.0/29", "fd00::/126")
		wantGot(t, n, "a", "10.0.0.2")
		n.Allocator.Release("a")
		time.Sleep(time.Minute)
		who.set("10.0.0.2", true)
		want := ipam.Request{Owner: "b", Want: ipv4("10.0.0.2")}
		for range 2 { // it is held by the second time
			_, err := n.Allocator.Allocate(t.Context(), want)
			wantFault(t, "named", err, ipam.ErrQuarantined)
		}
		if used := n.Allocator.Usage().Pools[0].Ranges[1].Used; used != 0 {
			t.Errorf("%d IPv6 addresses are in use", used)
		}
		who.set("10.0.0.2", false)
		time.Sleep(30 * time.Second)
		if _, err := n.Allocator.Allocate(t.Context(), want); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutAQuarantineNobodyIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs, cfg.Quarantine = []string{"10.0.0.0/30"}, 0
		n := node(t, cfg, who)
		who.set("10.0.0.2", true)
		for range 3 {
			wantGot(t, n, "a", "10.0.0.2")
			n.Allocator.Release("a")
		}
	})
}

func TestAPoolMayAllowThatWhatRestsIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := multiPool(t, who)
		n.MultiPool.Configure(ipam.DefaultPool, ipam.Settings{IPv4: true, Quarantine: time.Minute, ReuseResting: true})
		add(t, n, "10.0.0.0/30") // four addresses
		for _, owner := range []ipam.Handle{"a", "b", "c", "d"} {
			if _, err := get(n, owner); err != nil {
				t.Fatal(err)
			}
		}
		who.set("10.0.0.2", true)
		n.Allocator.Release("c") // .2
		time.Sleep(time.Second)
		n.Allocator.Release("b") // .1
		wantGot(t, n, "e", "10.0.0.2")
		wantGot(t, n, "f", "10.0.0.1")
		_, err := get(n, "g")
		wantFault(t, "nothing rests any more", err, ipam.ErrExhausted)
	})
}

func TestAnAddressThatWasNamedKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, "10.0.0.0/29")
		for _, owner := range []ipam.Handle{"a", "b", "c", "d", "e"} {
			if _, err := get(n, owner); err != nil {
				t.Fatal(err)
			}
		}
		for _, owner := range []ipam.Handle{"a", "b", "c"} { // .2, .3, .4
			n.Allocator.Release(owner)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Minute)
		who.set("10.0.0.2", true)
		wantGot(t, n, "f", "10.0.0.3")
		who.set("10.0.0.2", false)
		time.Sleep(30 * time.Second)
		n.Asker.Ask(t.Context())
		wantGot(t, n, "g", "10.0.0.2") // it is free for longer than .4
	})
}
