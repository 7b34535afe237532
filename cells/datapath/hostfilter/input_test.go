package hostfilter_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/internal/testutil"
)

const (
	allowedPort = 8080
	deniedPort  = 8090
	edgePort    = 8081 // the last of the allowed range
)

// toPorts allows a range of ports by TCP, one by UDP, and ICMP.
func toPorts() []hostfilter.Row {
	return []hostfilter.Row{
		{Protocol: unix.IPPROTO_TCP, First: allowedPort, Last: edgePort, Allow: true},
		{Protocol: unix.IPPROTO_UDP, First: allowedPort, Last: allowedPort, Allow: true},
		{Protocol: unix.IPPROTO_ICMP, Last: 65535, Allow: true},
		{Protocol: unix.IPPROTO_ICMPV6, Last: 65535, Allow: true},
		{},
	}
}

func TestPodToNode(t *testing.T) {
	h := newHost(t)
	restricted, free := h.newPeer(t), h.newPeer(t)
	for _, addr := range h.addrs {
		for _, port := range []uint16{allowedPort, edgePort, deniedPort} {
			service(t, h.Namespace, netip.AddrPortFrom(addr, port))
		}
	}
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: restricted.link, Rows: toPorts()}}})
	for i, addr := range h.addrs {
		for _, c := range []struct {
			from     *peer
			protocol string
			port     uint16
			want     bool
		}{
			{restricted, "tcp", allowedPort, true},
			{restricted, "tcp", edgePort, true},
			{restricted, "tcp", deniedPort, false},
			{restricted, "udp", allowedPort, true},
			{restricted, "udp", edgePort, false},
			{restricted, "icmp", 0, true},
			{free, "tcp", deniedPort, true},
			{free, "udp", deniedPort, true},
			{free, "icmp", 0, true},
		} {
			t.Run(fmt.Sprintf("%s_%s_%d_%v", ipv6(i), c.protocol, c.port, c.from == restricted), func(t *testing.T) {
				h.wantReaches(t, c.from.Namespace, c.protocol, netip.AddrPortFrom(addr, c.port), c.want)
			})
		}
	}
}

// TestGroups: an address of a group has rows of its own, if the pod has some for the group.
func TestGroups(t *testing.T) {
	h := newHost(t)
	p, q := h.newPeer(t), h.newPeer(t)
	for _, addr := range h.addrs {
		service(t, h.Namespace, netip.AddrPortFrom(addr, allowedPort))
	}
	for i, addr := range h.addrs {
		h.apply(t, hostfilter.Desired{
			Pods: []hostfilter.Pod{
				{Link: p.link, OfGroup: map[hostfilter.Group][]hostfilter.Row{7: toPorts()}},
				{Link: q.link, Rows: toPorts()},
			},
			Groups: map[netip.Addr]hostfilter.Group{addr: 7},
		})
		for _, protocol := range []string{"tcp", "udp", "icmp"} {
			h.wantReaches(t, p.Namespace, protocol, netip.AddrPortFrom(addr, allowedPort), true)
			h.wantReaches(t, p.Namespace, protocol, netip.AddrPortFrom(h.addrs[1-i], allowedPort), false)
			h.wantReaches(t, q.Namespace, protocol, netip.AddrPortFrom(addr, allowedPort), true)
		}
	}
	h.apply(t, hostfilter.Desired{
		Pods:   []hostfilter.Pod{{Link: p.link, Rows: toPorts(), OfGroup: map[hostfilter.Group][]hostfilter.Row{7: {}}}},
		Groups: map[netip.Addr]hostfilter.Group{h.addrs[0]: 7},
	})
	h.wantReaches(t, p.Namespace, "tcp", netip.AddrPortFrom(h.addrs[0], allowedPort), false)
	h.wantReaches(t, p.Namespace, "tcp", netip.AddrPortFrom(h.addrs[1], allowedPort), true)
}

// A range, the protocol and the rest: the narrowest decides.
func TestPrecedence(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	for _, addr := range h.addrs {
		for _, port := range []uint16{allowedPort, deniedPort} {
			service(t, h.Namespace, netip.AddrPortFrom(addr, port))
		}
	}
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: []hostfilter.Row{
		{Protocol: unix.IPPROTO_TCP, First: deniedPort, Last: deniedPort},
		{Protocol: unix.IPPROTO_TCP, Last: 65535, Allow: true},
		{Protocol: unix.IPPROTO_UDP, Last: 65535},
		{Allow: true},
	}}}})
	for _, addr := range h.addrs {
		h.wantReaches(t, p.Namespace, "tcp", netip.AddrPortFrom(addr, allowedPort), true)
		h.wantReaches(t, p.Namespace, "tcp", netip.AddrPortFrom(addr, deniedPort), false)
		h.wantReaches(t, p.Namespace, "udp", netip.AddrPortFrom(addr, allowedPort), false)
		h.wantReaches(t, p.Namespace, "icmp", netip.AddrPortFrom(addr, 0), true)
	}
}

// TestTypesOfICMP: a row for a type of ICMP decides before one for the protocol.
func TestTypesOfICMP(t *testing.T) {
	h := newHost(t)
	allows, denies := h.newPeer(t), h.newPeer(t)
	rows := func(echo bool) []hostfilter.Row {
		return []hostfilter.Row{
			{Protocol: unix.IPPROTO_ICMP, First: 8, Last: 8, Allow: echo}, {Protocol: unix.IPPROTO_ICMP, Last: 65535, Allow: !echo},
			{Protocol: unix.IPPROTO_ICMPV6, First: 128, Last: 128, Allow: echo}, {Protocol: unix.IPPROTO_ICMPV6, Last: 65535, Allow: !echo}, {Allow: !echo},
		}
	}
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: allows.link, Rows: rows(true)}, {Link: denies.link, Rows: rows(false)}}})
	for _, addr := range h.addrs {
		h.wantReaches(t, allows.Namespace, "icmp", netip.AddrPortFrom(addr, 0), true)
		h.wantReaches(t, denies.Namespace, "icmp", netip.AddrPortFrom(addr, 0), false)
	}
}

// A node port whose backend is a process of the node: the port after the translation counts, for the first packet too.
func TestNodePort(t *testing.T) {
	const nodePort, translated = 30080, 30090
	writers := map[string]func(t *testing.T, h *host){
		"nftables": func(t *testing.T, h *host) {
			for i, family := range []string{"ip", "ip6"} {
				text := fmt.Sprintf("table %s kube-proxy {\nchain nat-prerouting {\ntype nat hook prerouting priority -100;\n", family)
				for _, protocol := range []string{"tcp", "udp"} {
					text += fmt.Sprintf("%s daddr %s %s dport %d dnat to %s\n", family, h.addrs[i], protocol, nodePort, netip.AddrPortFrom(h.addrs[i], allowedPort))
					text += fmt.Sprintf("%s daddr %s %s dport %d dnat to %s\n", family, h.addrs[i], protocol, translated, netip.AddrPortFrom(h.addrs[i], deniedPort))
				}
				h.rules(t, text+"}\n}\n", "nft", "-f", "-")
			}
		},
		"iptables": func(t *testing.T, h *host) {
			for i, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
				text := "*nat\n:KUBE-NODEPORTS - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"
				for _, protocol := range []string{"tcp", "udp"} {
					text += fmt.Sprintf("-A KUBE-NODEPORTS -p %s -m %[1]s --dport %d -j DNAT --to-destination %s\n", protocol, nodePort, netip.AddrPortFrom(h.addrs[i], allowedPort))
					text += fmt.Sprintf("-A KUBE-NODEPORTS -p %s -m %[1]s --dport %d -j DNAT --to-destination %s\n", protocol, translated, netip.AddrPortFrom(h.addrs[i], deniedPort))
				}
				h.rules(t, text+"COMMIT\n", program, "--wait")
			}
		},
	}
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.newPeer(t)
			write(t, h)
			h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: toPorts()}}})
			for _, addr := range h.addrs {
				service(t, h.Namespace, netip.AddrPortFrom(addr, allowedPort))
				service(t, h.Namespace, netip.AddrPortFrom(addr, deniedPort))
				for _, protocol := range []string{"tcp", "udp"} {
					h.wantReaches(t, p.Namespace, protocol, netip.AddrPortFrom(addr, nodePort), true)
					h.wantReaches(t, p.Namespace, protocol, netip.AddrPortFrom(addr, translated), false)
				}
			}
		})
	}
}

func TestRevokedRightEndsConnection(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	for _, addr := range h.addrs {
		service(t, h.Namespace, netip.AddrPortFrom(addr, allowedPort))
		for _, protocol := range []string{"tcp", "udp"} {
			h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: toPorts()}}})
			c, err := dial(p.Namespace, protocol, netip.AddrPortFrom(addr, allowedPort), testutil.Patience)
			must(t, err)
			must(t, c.ask(testutil.Patience))
			h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link}}})
			if err := c.ask(unreachable); err == nil {
				t.Errorf("%s to %s goes on without the right", protocol, addr)
			}
			c.Close()
		}
	}
}

// A connection of the node to a pod without any right passes both ways, and so do ICMP errors.
func TestNodeToPod(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link}}})
	for _, addr := range p.addrs {
		service(t, p.Namespace, netip.AddrPortFrom(addr, allowedPort))
		for _, protocol := range []string{"tcp", "udp", "icmp"} {
			h.wantReaches(t, h.Namespace, protocol, netip.AddrPortFrom(addr, allowedPort), true)
		}
		c, err := dial(h.Namespace, "udp", netip.AddrPortFrom(addr, deniedPort), testutil.Patience)
		must(t, err)
		if err := c.ask(testutil.Patience); !isRefused(err) {
			t.Errorf("a closed port of %s: error %v, want the pod's ICMP error", addr, err)
		}
		c.Close()
	}
}

// The entries on both sides are permanent. Without them a restricted pod still finds its neighbour.
func TestNeighbourDiscovery(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	must(t, h.Netlink(t).AddrAdd(testutil.LinkAt(p.link), testutil.Address(netip.MustParsePrefix("fe80::1:1/64"))))
	entries, err := p.PermanentNeighbours(0)
	must(t, err)
	for _, entry := range entries {
		must(t, p.Netlink(t).NeighDel(&entry))
	}
	rows := []hostfilter.Row{{Protocol: unix.IPPROTO_TCP, First: allowedPort, Last: allowedPort, Allow: true}}
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: rows}}})
	service(t, h.Namespace, netip.AddrPortFrom(h.addrs[1], allowedPort))
	h.wantReaches(t, p.Namespace, "tcp", netip.AddrPortFrom(h.addrs[1], allowedPort), true)
}
