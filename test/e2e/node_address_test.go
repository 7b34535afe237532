package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// nodeAddress gives a bridge of the node an address, or takes it away.
func nodeAddress(t *testing.T, node *testutil.Node, change func(netlink.Link, *netlink.Addr) error, addr netip.Addr) {
	t.Helper()
	must(t, node.Do(func() error {
		cni0, err := netlink.LinkByName("cni0")
		if err != nil {
			return err
		}
		return change(cni0, &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())})
	}))
}

// Another agent has left its bridge, with addresses that lie in the node's prefixes now.
func TestNodeAddress(t *testing.T) {
	node := testutil.NewNode(t)
	must(t, node.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}})
	}))
	left4, left6 := netip.MustParseAddr("10.100.1.2"), netip.MustParseAddr("fd00:10:1::3")
	nodeAddress(t, node, netlink.AddrAdd, left4)
	nodeAddress(t, node, netlink.AddrAdd, left6)
	r := rigOn(t, node)
	a, b := r.pod(), r.pod()
	for _, p := range []pod{a, b} {
		if p.ipv4 == left4 || p.ipv6 == left6 {
			t.Errorf("a container got %s and %s, of which the node has one", p.ipv4, p.ipv6)
		}
		if err := testutil.Ping(node.Namespace, p.ipv4, reach); err != nil {
			t.Error(err)
		}
	}
	if log := r.agent.Log(); strings.Count(log, "ip=10.100.1.2 ifname=cni0") != 1 {
		t.Error("the log does not name 10.100.1.2 of cni0 once")
	}
	if out, err := r.porin("ipam", "list"); err != nil || !strings.Contains(out, "10.100.1.2    default  the node itself") {
		t.Errorf("porin ipam list: %v\n%s", err, out)
	}
	r.wantChecked(r.checked(), "", "")

	// An address that a container has already is found, and stays.
	nodeAddress(t, node, netlink.AddrAdd, a.ipv4)
	r.wantChecked(r.checked(), "", "address-foreign")
	r.agent.Restart(t)
	r.wantChecked(r.checked(), "", "address-foreign")
	if log := r.agent.Log(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "ip="+a.ipv4.String()) {
		t.Error("the log does not name the address that the node has got")
	}
	nodeAddress(t, node, netlink.AddrDel, a.ipv4)
	r.wantChecked(r.checked(), "", "")
	if len(r.endpoints()) != 2 {
		t.Errorf("endpoints %+v, want two", r.endpoints())
	}
}

// TestNodeAddressChanges: the host's addresses change before the Node's InternalIPs, and later the InternalIPs change
// to further addresses of the host. Without a restart other nodes, policies and health follow.
func TestNodeAddressChanges(t *testing.T) {
	t.Parallel()
	for _, mode := range ipamModes {
		for _, w := range testutil.Sample(wirings...) {
			t.Run(mode.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				testNodeAddressChanges(t, w.make(t), slices.Concat(mode.flags, w.flags))
			})
		}
	}
}

func testNodeAddressChanges(t *testing.T, fabric *testutil.Fabric, flags []string) {
	one, two := fabric.NewNode(t), fabric.NewNode(t)
	api := newAPIServer(t, one)
	other := api.on(two)
	api.object("u1", one.PodIPv4.String(), one.PodIPv6.String())
	other.object("u2", two.PodIPv4.String(), two.PodIPv6.String())
	api.namespace("shop", nil)
	api.pod("web", "web")
	api.pod("free", "free")
	other.pod("db", "db")
	other.pod("far", "far")
	api.Serve(kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"}, Kind: "CiliumNetworkPolicy", Namespaced: true})
	api.Put(recordstest.Definition("ciliumnetworkpolicies.cilium.io"))
	for app, entity := range map[string]string{"web": "remote-node", "db": "host"} {
		api.policy(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: ` + app + `, namespace: shop}, spec: {endpointSelector: {matchLabels: {app: ` + app + `}},
			egress: [{toEntities: [` + entity + `]}], ingress: [{fromEntities: [remote-node]}]}}`)
	}
	all := append(api.store(flags), "--ipam-pod-cidr=", "--masquerade=both", withHealth, "--health-probe-interval=1s")
	first, second := rigOn(t, one, append(all, api.flags...)...), rigOn(t, two, append(all, other.flags...)...)
	c := &nodeGroup{TB: t, nodes: []*rig{first, second}}
	web, free, db, far := first.named("shop", "web"), first.named("shop", "free"), second.named("shop", "db"), second.named("shop", "far")
	for _, addr := range []netip.Addr{web.ipv4, web.ipv6} {
		web.Listen(t, netip.AddrPortFrom(addr, 8080))
	}
	connects := func(from *testutil.Namespace, source, to netip.Addr, want bool) {
		t.Helper()
		testutil.Eventually(t, func() error {
			conn, err := connectAs(from, source, netip.AddrPortFrom(to, 8080))
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != want {
				return fmt.Errorf("connection to %s: %v, want it to be let through: %t", to, err, want)
			}
			return nil
		})
	}
	follow := func(when string) {
		t.Helper()
		began := time.Now()
		want := []netip.Addr{two.IPv4, two.IPv6}
		testutil.Eventually(t, func() error {
			if peers := first.peers(); len(peers) != 1 || !slices.Equal(peers[0].Addresses, want) {
				return fmt.Errorf("peers %+v, want one with the addresses %s", peers, want)
			}
			return nil
		})
		for i, addr := range want {
			ofWeb, ofDB := []netip.Addr{web.ipv4, web.ipv6}[i], []netip.Addr{db.ipv4, db.ipv6}[i]
			server := two.Listen(t, netip.AddrPortFrom(addr, 8080))
			connects(web.Namespace, ofWeb, addr, true) // remote-node
			connects(db.Namespace, ofDB, addr, true)   // host
			connects(two.Namespace, addr, ofWeb, true) // remote-node
			_ = server.Close()
			c.waitForPing(far.Namespace, []netip.Addr{testutil.OutsideIPv4, testutil.OutsideIPv6}[i])
		}
		c.waitForMesh([]pod{free, far})
		first.probes(two.Name, want, began)
		first.seesNode(two.Name, "")
		second.seesNode(one.Name, "")
		t.Logf("%s: after %.1f s", when, time.Since(began).Seconds())
	}
	follow("at the start")

	old := two.IPv4
	fabric.Renumber(t, two, netip.MustParseAddr("192.0.2.102"), netip.MustParseAddr("2001:db8::102"))
	follow("when the host has other addresses")
	if err := fabric.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.PrefixFrom(old, 32))); err != nil {
		t.Fatal(err)
	}
	fabric.Listen(t, netip.AddrPortFrom(old, 8080))
	connects(free.Namespace, free.ipv4, old, true)
	connects(web.Namespace, web.ipv4, old, false) // it is no node any more
	other.object("u2", two.PodIPv4.String(), two.PodIPv6.String())
	follow("when the Node has them, too")

	two.IPv4, two.IPv6 = netip.MustParseAddr("192.0.2.202"), netip.MustParseAddr("2001:db8::202")
	for _, addr := range []netip.Addr{two.IPv4, two.IPv6} {
		if err := two.Netlink(t).AddrAdd(two.Link(t, "eth0"), testutil.Address(netip.PrefixFrom(addr, addr.BitLen()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := fabric.Connect(two); err != nil { // it has routes to them
		t.Fatal(err)
	}
	other.object("u2", two.PodIPv4.String(), two.PodIPv6.String())
	follow("when the Node has further addresses of the host")
	for _, r := range c.nodes {
		r.agrees()
	}
}

// probes waits until another node has answered by exactly these addresses since then.
func (r *rig) probes(name string, want []netip.Addr, since time.Time) {
	r.Helper()
	testutil.Eventually(r, func() error {
		answer, err := r.api.Health(r.Context())
		if err != nil {
			return err
		}
		var answered []netip.Addr
		for _, n := range answer.Nodes {
			for _, p := range n.Probes {
				if n.Name == name && p.Target == "node" && p.LastSeen != nil && p.LastSeen.After(since) {
					answered = append(answered, p.Address)
				}
			}
		}
		slices.SortFunc(answered, netip.Addr.Compare)
		if !slices.Equal(answered, want) {
			return fmt.Errorf("%s answered by %s, want %s", name, answered, want)
		}
		return nil
	})
}

// connectAs connects from a given address.
func connectAs(ns *testutil.Namespace, source netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: unreachable, LocalAddr: &net.TCPAddr{IP: source.AsSlice()}}
	err = ns.Do(func() error { conn, err = dialer.Dial("tcp", to.String()); return err })
	return conn, err
}
