package hostfilter_test

import (
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
		got := hostfilter.NextNumbers(before, c.groups)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for a, n := range c.want {
			if got[a] != n {
				t.Errorf("%s: %s has %d, want %d", name, a, got[a], n)
			}
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

// TestChangeOfRowsBesidePackets changes other ports of a pod all the time: packets to a denied port never arrive.
func TestChangeOfRowsBesidePackets(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	denied := netip.AddrPortFrom(h.addrs[0], deniedPort)
	service(t, h.Namespace, denied)
	c, err := dial(p.Namespace, "udp", denied, unreachable)
	must(t, err)
	defer c.Close()
	row := func(port uint16, allow bool) hostfilter.Row {
		return hostfilter.Row{Protocol: unix.IPPROTO_UDP, First: port, Last: port, Allow: allow}
	}
	for i := range 300 {
		var rows []hostfilter.Row
		for j := range 50 {
			rows = append(rows, row(uint16(1000+i+7*j), j%2 == 0))
		}
		h.apply(t, hostfilter.Desired{
			Pods:     []hostfilter.Pod{{Link: p.link, Rows: append(rows, row(deniedPort, false), hostfilter.Row{Allow: true})}},
			Enforced: []int{p.link},
		})
		_, err := c.Write([]byte("hello"))
		must(t, err)
	}
	if err := c.ask(unreachable); err == nil {
		t.Error("a packet to a denied port has arrived")
	}
}
