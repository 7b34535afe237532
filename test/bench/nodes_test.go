package bench

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// between measures traffic of pods of two nodes against the kernel's own routing, and by tunnels against the kernel's
// own VXLAN device. Every pair of nodes is on a link of its own.
func between(t *testing.T, r *report) {
	for _, routing := range []struct {
		name   string
		kernel func(*testing.T, [2]plainNode)
	}{{"native", routePods}, {"vxlan", tunnelPods}} {
		paths := []path{plain(t, routing.kernel, "kernel, "+routing.name), acrossNodes(t, routing.name)}
		for _, on := range placements {
			trafficOn(t, r, paths, on)
			for _, measure := range []string{"request-response p50, ", "connect-request-close, ", "one stream, "} {
				system, measure := paths[1].name, measure+on.name
				if of := measure + ", of the kernel's own, " + routing.name; measure[0] == 'r' {
					r.atMost(of, r.ratio(measure, system), 1.08, "")
				} else {
					r.atLeast(of, r.ratio(measure, system), 0.97, "")
				}
			}
		}
	}
}

// acrossNodes is the way between pods of two nodes that know each other.
func acrossNodes(t *testing.T, routing string) path {
	t.Helper()
	server := newAPI(t)
	fabric := testutil.NewLAN(t)
	var namespaces [2]*testutil.Namespace
	var addr netip.Addr
	for i := range namespaces {
		node := fabric.NewNode(t)
		s := porinWith(t, node, "porin", nil, "--store=kubernetes", "--kubeconfig="+server.ServeIn(t, node.Do, "127.0.0.1:0").Kubeconfig,
			"--routing="+routing, "--ipam-pod-cidr="+node.PodIPv4.String())
		c := testutil.NewContainer(t)
		addr = s.attach(t, c)[0]
		namespaces[i] = c.Namespace
	}
	testutil.Eventually(t, func() error { return testutil.Ping(namespaces[0], addr, 0) })
	return path{"porin, " + routing, namespaces[0], namespaces[1], addr}
}

// plainNode is a node without an agent, and its pod.
type plainNode struct {
	*testutil.Node
	pod  *testutil.Namespace
	addr netip.Addr // of the pod
}

// plain is the way between pods of two nodes that have no more than routes.
func plain(t *testing.T, join func(*testing.T, [2]plainNode), name string) path {
	t.Helper()
	fabric := testutil.NewLAN(t)
	var nodes [2]plainNode
	for i := range nodes {
		nodes[i] = newPlainNode(t, fabric)
	}
	join(t, nodes)
	testutil.Eventually(t, func() error { return testutil.Ping(nodes[0].pod, nodes[1].addr, 0) })
	return path{name, nodes[0].pod, nodes[1].pod, nodes[1].addr}
}

func newPlainNode(t *testing.T, fabric *testutil.Fabric) plainNode {
	t.Helper()
	n := plainNode{Node: fabric.NewNode(t), pod: testutil.NetNS(t)}
	n.addr = n.PodIPv4.Addr().Next()
	n.Sysctl(t, "net/ipv4/ip_forward", "1")
	gateway := netip.MustParseAddr("169.254.1.1")
	nodeMAC, podMAC := testutil.MAC(2, 0, 0, 3, 0, 1), testutil.MAC(2, 0, 0, 3, 0, 2)
	host, err := n.AddVeth(testutil.Veth{Name: "pod", MAC: nodeMAC, Peer: n.pod, PeerName: "eth0", PeerMAC: podMAC})
	if err != nil {
		t.Fatal(err)
	}
	outside, inside, index := n.Netlink(t), n.pod.Netlink(t), host.Attrs().Index
	eth0 := n.pod.Link(t, "eth0")
	route := testutil.GatewayRoute(eth0.Attrs().Index, netip.MustParsePrefix("0.0.0.0/0"), gateway)
	route.Flags = int(netlink.FLAG_ONLINK)
	err = errors.Join(
		outside.LinkSetUp(host),
		outside.RouteAdd(testutil.HostRoute(index, n.addr, 0)),
		outside.NeighSet(testutil.PermanentNeighbour(index, n.addr, podMAC)),
		inside.LinkSetUp(eth0),
		inside.AddrAdd(eth0, testutil.Address(netip.PrefixFrom(n.addr, 32))),
		inside.NeighSet(testutil.PermanentNeighbour(eth0.Attrs().Index, gateway, nodeMAC)),
		inside.RouteAdd(route),
	)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// routePods gives each node a route to the other's pods by its address.
func routePods(t *testing.T, nodes [2]plainNode) {
	t.Helper()
	for i, n := range nodes {
		peer := nodes[1-i]
		if err := n.Netlink(t).RouteAdd(testutil.GatewayRoute(n.Link(t, "eth0").Attrs().Index, peer.PodIPv4, peer.IPv4)); err != nil {
			t.Fatal(err)
		}
	}
}

// tunnelPods gives each node a VXLAN device to the other one, and a route to its pods through it.
func tunnelPods(t *testing.T, nodes [2]plainNode) {
	t.Helper()
	mac := testutil.MAC(2, 0, 0, 4, 0, 0)
	for i, n := range nodes {
		peer, handle := nodes[1-i], n.Netlink(t)
		mac[5] = byte(i)
		device := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vxlan", MTU: 1450, HardwareAddr: append([]byte(nil), mac...)}, VxlanId: 42, Port: 8472,
			SrcAddr: n.IPv4.AsSlice(), Group: peer.IPv4.AsSlice(), VtepDevIndex: n.Link(t, "eth0").Attrs().Index,
		}
		err := handle.LinkAdd(device)
		if err != nil {
			t.Fatal(err)
		}
		mac[5] = byte(1 - i)
		index := n.Link(t, "vxlan").Attrs().Index
		route := testutil.GatewayRoute(index, peer.PodIPv4, peer.PodIPv4.Addr())
		route.Flags = int(netlink.FLAG_ONLINK)
		err = errors.Join(
			handle.LinkSetUp(device),
			handle.NeighSet(&netlink.Neigh{LinkIndex: index, IP: peer.PodIPv4.Addr().AsSlice(), HardwareAddr: append([]byte(nil), mac...), State: unix.NUD_PERMANENT}),
			handle.RouteAdd(route),
		)
		if err != nil {
			t.Fatal(err)
		}
		eth0 := n.pod.Link(t, "eth0")
		if err := errors.Join(handle.LinkSetMTU(n.Link(t, "pod"), 1450), n.pod.Netlink(t).LinkSetMTU(eth0, 1450)); err != nil {
			t.Fatal(err)
		}
	}
}
