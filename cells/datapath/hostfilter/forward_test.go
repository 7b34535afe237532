package hostfilter_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/internal/testutil"
)

// The guard: packets of a restricted pod leave only by devices with the program.
func TestGuard(t *testing.T) {
	h := newHost(t)
	restricted, free, uplink, other := h.newPeer(t), h.newPeer(t), h.newPeer(t), h.newPeer(t)
	desired := hostfilter.Desired{
		Pods:     []hostfilter.Pod{{Link: restricted.link, Rows: []hostfilter.Row{{Allow: true}}}},
		Enforced: []int{restricted.link, free.link, uplink.link},
	}
	h.apply(t, desired)
	for _, p := range []*peer{restricted, free, uplink, other} {
		for _, addr := range p.addrs {
			service(t, p.Namespace, netip.AddrPortFrom(addr, allowedPort))
		}
	}
	for i := range h.addrs {
		at := func(p *peer) netip.AddrPort { return netip.AddrPortFrom(p.addrs[i], allowedPort) }
		for _, protocol := range []string{"tcp", "udp", "icmp"} {
			h.wantReaches(t, restricted.Namespace, protocol, at(uplink), true)
			h.wantReaches(t, restricted.Namespace, protocol, at(free), true)
			h.wantReaches(t, restricted.Namespace, protocol, at(other), false)
			h.wantReaches(t, free.Namespace, protocol, at(other), true)
			h.wantReaches(t, other.Namespace, protocol, at(restricted), true) // a reply leaves by the device
		}
		c, err := dial(other.Namespace, "udp", netip.AddrPortFrom(restricted.addrs[i], deniedPort), testutil.Patience)
		must(t, err)
		if err := c.ask(testutil.Patience); !isRefused(err) {
			t.Errorf("a closed port of the pod: error %v, want its ICMP error", err)
		}
		c.Close()
	}
	desired.Enforced = append(desired.Enforced, other.link)
	h.apply(t, desired)
	h.wantReaches(t, restricted.Namespace, "tcp", netip.AddrPortFrom(other.addrs[0], allowedPort), true)
}

// The guard sees the device that the node's translation leads to.
func TestGuardAfterTranslation(t *testing.T) {
	h := newHost(t)
	restricted, uplink, other := h.newPeer(t), h.newPeer(t), h.newPeer(t)
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: restricted.link}}, Enforced: []int{restricted.link, uplink.link}})
	service(t, other.Namespace, netip.AddrPortFrom(other.addrs[0], allowedPort))
	service(t, uplink.Namespace, netip.AddrPortFrom(uplink.addrs[0], allowedPort))
	h.rules(t, "table ip kube-proxy {\nchain nat-prerouting {\ntype nat hook prerouting priority -100;\n"+
		"ip daddr 172.30.0.1 tcp dport 80 dnat to "+netip.AddrPortFrom(other.addrs[0], allowedPort).String()+"\n"+
		"ip daddr 172.30.0.2 tcp dport 80 dnat to "+netip.AddrPortFrom(uplink.addrs[0], allowedPort).String()+"\n}\n}\n", "nft", "-f", "-")
	for text, want := range map[string]bool{"172.30.0.1": false, "172.30.0.2": true} {
		clusterIP := netip.MustParseAddr(text)
		// Without the translation, both would leave by the uplink.
		must(t, h.Netlink(t).RouteAdd(testutil.HostRoute(uplink.link, clusterIP, 4)))
		h.wantReaches(t, restricted.Namespace, "tcp", netip.AddrPortFrom(clusterIP, 80), want)
	}
}

// A tunnel that comes later has no program.
func TestGuardNewTunnel(t *testing.T) {
	h := newHost(t)
	restricted, uplink := h.newPeer(t), h.newPeer(t)
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: restricted.link}}, Enforced: []int{restricted.link, uplink.link}})
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "vxlan1"
	must(t, h.Netlink(t).LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 4789, Learning: true}))
	tunnel := h.Link(t, "vxlan1")
	must(t, h.Netlink(t).LinkSetUp(tunnel))
	beyond := netip.MustParseAddr("10.9.9.9")
	must(t, h.Netlink(t).RouteAdd(testutil.HostRoute(tunnel.Attrs().Index, beyond, 4)))
	must(t, h.Netlink(t).NeighSet(testutil.PermanentNeighbour(tunnel.Attrs().Index, beyond, testutil.MAC(2, 9))))
	h.wantReaches(t, restricted.Namespace, "udp", netip.AddrPortFrom(beyond, 80), false)
}
