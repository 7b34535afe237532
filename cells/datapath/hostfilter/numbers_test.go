package hostfilter_test

import (
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/hostfilter"
)

// TestNextAgentKeepsNumbers has an agent whose groups have other numbers: it writes nothing.
func TestNextAgentKeepsNumbers(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	desired := func(a, b hostfilter.Group) hostfilter.Desired {
		return hostfilter.Desired{
			Pods:     []hostfilter.Pod{{Link: p.link, OfGroup: map[hostfilter.Group][]hostfilter.Row{a: toPorts(), b: {{Allow: true}}}}},
			Enforced: []int{p.link},
			Groups:   map[netip.Addr]hostfilter.Group{h.addrs[0]: a, h.addrs[1]: b},
		}
	}
	h.apply(t, desired(7, 8))
	before := h.generation(t)
	must(t, h.newFilter(t).Apply(desired(23, 5)))
	h.apply(t, desired(8, 7))
	if after := h.generation(t); after != before {
		t.Errorf("%d transactions for groups that are the same", after-before)
	}
}

// TestNumbers: a group that loses no address keeps its number. Any other one has none of before.
func TestNumbers(t *testing.T) {
	addr := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	before := map[netip.Addr]uint32{addr(1): 1, addr(2): 1, addr(3): 1, addr(4): 2}
	for name, c := range map[string]struct {
		groups map[netip.Addr]hostfilter.Group
		want   map[netip.Addr]uint32
	}{
		"the same":                  {map[netip.Addr]hostfilter.Group{addr(1): 9, addr(2): 9, addr(3): 9, addr(4): 4}, before},
		"split":                     {map[netip.Addr]hostfilter.Group{addr(1): 1, addr(2): 2, addr(3): 2, addr(4): 3}, map[netip.Addr]uint32{addr(1): 3, addr(2): 4, addr(3): 4, addr(4): 2}},
		"more":                      {map[netip.Addr]hostfilter.Group{addr(1): 9, addr(2): 9, addr(3): 9, addr(4): 4, addr(5): 4}, map[netip.Addr]uint32{addr(1): 1, addr(2): 1, addr(3): 1, addr(4): 2, addr(5): 2}},
		"joined":                    {map[netip.Addr]hostfilter.Group{addr(1): 2, addr(2): 2, addr(3): 2, addr(4): 2}, map[netip.Addr]uint32{addr(1): 1, addr(2): 1, addr(3): 1, addr(4): 1}},
		"one goes, and a new group": {map[netip.Addr]hostfilter.Group{addr(1): 2, addr(5): 1}, map[netip.Addr]uint32{addr(1): 3, addr(5): 4}},
		"none":                      {nil, map[netip.Addr]uint32{}},
	} {
		numbers := hostfilter.NextNumbers(before, c.groups)
		got := map[netip.Addr]uint32{}
		for a, group := range c.groups {
			got[a] = numbers[group]
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestNoRowIsDenied has a packet whose pod has no rows, as between two lookups beside a change.
func TestNoRowIsDenied(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	at := netip.AddrPortFrom(h.addrs[0], allowedPort)
	service(t, h.Namespace, at)
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: []hostfilter.Row{{Allow: true}}}}, Enforced: []int{p.link}})
	h.wantReaches(t, p.Namespace, "tcp", at, true)
	h.rules(t, "flush map inet porin others\n", "nft", "-f", "-")
	h.wantReaches(t, p.Namespace, "tcp", at, false)
}

// TestChangesBesidePackets sends packets to a denied port of an address, while rows and groups change all the time that
// deny it before and after: none arrives.
func TestChangesBesidePackets(t *testing.T) {
	udp := func(first, last uint16) hostfilter.Row {
		return hostfilter.Row{Protocol: unix.IPPROTO_UDP, First: first, Last: last, Allow: true}
	}
	allButDenied := []hostfilter.Row{{Protocol: unix.IPPROTO_UDP, Last: 65535}, udp(0, deniedPort-1), udp(deniedPort+1, 65535), {Allow: true}}
	allButTwo := []hostfilter.Row{{Protocol: unix.IPPROTO_UDP, Last: 65535}, udp(0, deniedPort-2), udp(deniedPort+1, 65535), {Allow: true}}
	denied, allowed := []hostfilter.Row{{}}, []hostfilter.Row{{Allow: true}}
	for name, states := range map[string][2]struct {
		rows    []hostfilter.Row
		ofGroup map[hostfilter.Group][]hostfilter.Row
		groups  [2]hostfilter.Group // of the address, and of another one; 0: none
	}{
		"ranges": {{rows: allButDenied}, {rows: allButTwo}},
		"a group splits": {
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{1: allButDenied}, groups: [2]hostfilter.Group{1, 1}},
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{1: denied, 2: allowed}, groups: [2]hostfilter.Group{1, 2}},
		},
		"a group goes": {
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{1: allButDenied, 2: allowed}, groups: [2]hostfilter.Group{1, 2}},
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{2: allowed}, groups: [2]hostfilter.Group{0, 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.newPeer(t)
			at := netip.AddrPortFrom(h.addrs[0], deniedPort)
			service(t, h.Namespace, at)
			apply := func(i int) {
				s := states[i%2]
				groups := map[netip.Addr]hostfilter.Group{}
				for n, group := range s.groups {
					if group != 0 {
						groups[h.addrs[n]] = group
					}
				}
				h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: s.rows, OfGroup: s.ofGroup}}, Enforced: []int{p.link}, Groups: groups})
			}
			apply(0)
			c, err := dial(p.Namespace, "udp", at, unreachable)
			must(t, err)
			defer c.Close()
			stop, done := make(chan struct{}), make(chan int)
			go func() {
				sent := 0
				defer func() { done <- sent }()
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = c.Write([]byte("hello"))
						sent++
					}
				}
			}()
			before := h.generation(t)
			const changes = 300
			for i := range changes {
				apply(i + 1)
			}
			close(stop)
			t.Logf("%d packets", <-done)
			if after := h.generation(t); after != before+changes {
				t.Errorf("%d changes took %d transactions", changes, after-before)
			}
			if err := c.ask(unreachable); err == nil {
				t.Error("a packet to a denied port has arrived")
			}
		})
	}
}
