package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/watchable"
)

func peerAt(name string, mode cluster.RoutingMode, addresses []netip.Addr, blocks ...string) Peer {
	return Peer{
		NodeNetwork: cluster.NodeNetwork{Node: IDOfName(name), Addresses: addresses, Routing: mode, TunnelPort: 8472}, Blocks: prefixes(blocks...),
	}
}

// TestTunnelOwners: no record takes what is this node's, and a node without a family in common is left out.
func TestTunnelOwners(t *testing.T) {
	view := View{
		Self: Self{Node: IDOfName("self"), Addresses: addresses("192.0.2.1", "2001:db8::1"), Blocks: prefixes("10.1.0.0/24")},
		Peers: []Peer{
			peerAt("dual", cluster.RoutingVXLAN, addresses("192.0.2.2", "2001:db8::2"), "10.2.0.0/24"),
			peerAt("six", cluster.RoutingNative, addresses("2001:db8::3"), "10.3.0.0/24"),
			peerAt("nowhere", cluster.RoutingVXLAN, nil, "10.4.0.0/24"),
			peerAt("thief", cluster.RoutingVXLAN, addresses("10.1.0.7", "2001:db8::1")),
		},
	}
	all := tunnelOwners(view)
	for text, want := range map[string]tunnel.Owner{
		"10.1.0.0/24":     {Pods: true},
		"192.0.2.1/32":    {},
		"2001:db8::1/128": {},
		"10.2.0.0/24":     {Addresses: addresses("192.0.2.2", "2001:db8::2"), Local: netip.MustParseAddr("192.0.2.1"), Pods: true},
		"2001:db8::2/128": {Addresses: addresses("192.0.2.2", "2001:db8::2"), Local: netip.MustParseAddr("192.0.2.1")},
		"192.0.2.2/32":    {Addresses: addresses("192.0.2.2", "2001:db8::2"), Local: netip.MustParseAddr("192.0.2.1")},
		"10.3.0.0/24":     {Addresses: addresses("2001:db8::3"), Local: netip.MustParseAddr("2001:db8::1"), Pods: true},
		"2001:db8::3/128": {Addresses: addresses("2001:db8::3"), Local: netip.MustParseAddr("2001:db8::1")},
	} {
		prefix := netip.MustParsePrefix(text)
		got, ok := all[prefix]
		if !ok || !slices.Equal(got.Addresses, want.Addresses) || got.Local != want.Local || got.Pods != want.Pods {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		delete(all, prefix)
	}
	if len(all) > 0 {
		t.Errorf("and nothing else, but %+v", all)
	}
}

// TestTunnelMTU: the device has the MTU of the outer family with the most room, and a route to a node with less its
// own.
func TestTunnelMTU(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	self := Self{Addresses: []netip.Addr{v4, v6}}
	block := netip.MustParsePrefix("10.2.0.0/24")
	for _, row := range []struct {
		uplinks       map[netip.Addr]int
		device, toSix int
	}{
		{map[netip.Addr]int{v4: 1500, v6: 1500}, 1450, 1430},
		{map[netip.Addr]int{v4: 9000, v6: 1500}, 8950, 1430},
		{map[netip.Addr]int{v4: 1400, v6: 1500}, 1430, 0},
		{map[netip.Addr]int{v6: 1500}, 1430, 0},
		{map[netip.Addr]int{v4: 1300}, 1280, 0},
		{map[netip.Addr]int{}, 1430, 1280},
	} {
		if got := tunnelMTU(row.uplinks); got != row.device {
			t.Errorf("uplinks %v: the device's MTU is %d, want %d", row.uplinks, got, row.device)
		}
		if _, ok := row.uplinks[v6]; !ok {
			continue
		}
		if got := tunnelHop(1, block, self, peerAt("six", cluster.RoutingVXLAN, []netip.Addr{netip.MustParseAddr("2001:db8::2")}), row.uplinks).mtu; got != row.toSix {
			t.Errorf("uplinks %v: the route to a node with IPv6 alone has the MTU %d, want %d", row.uplinks, got, row.toSix)
		}
	}
}

// source is an [AddressSource] in memory.
type source struct {
	has, next []netip.Addr
	err       error
}

func (s *source) Keep(addrs []netip.Addr) error { s.has = addrs; return s.err }
func (s *source) LacksFamily() bool             { return s.has != nil && len(s.has) < len(s.next) }
func (s *source) Release()                      { s.has = nil }
func (s *source) Allocate(context.Context) ([]netip.Addr, error) {
	if s.has == nil {
		s.has = s.next
	}
	return s.has, s.err
}

// tunnelled is a router of a node with a real tunnel.
type tunnelled struct {
	*router
	node   *testutil.Node
	source *source
}

func newTunnelled(t *testing.T, mode cluster.RoutingMode) *tunnelled {
	t.Helper()
	x := &tunnelled{node: testutil.NewNode(t), source: &source{next: addresses("10.1.0.1")}}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	err := x.node.Do(func() error {
		kernel, err := openKernel()
		if err != nil {
			return err
		}
		device := tunnel.New(tunnel.Config{BPFRoot: x.node.BPFRoot, Port: 8472}, kernel.handle, kernel.namespace, log)
		t.Cleanup(func() {
			if err := errors.Join(device.Close(), kernel.close()); err != nil {
				t.Error(err)
			}
		})
		x.router = newRouter(mode, nil, kernel, device, newTunnelAddresses(x.source, x.node.Dir, log), nil, &watchable.Value[TunnelEnd]{}, log)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *tunnelled) view(mode cluster.RoutingMode, peers ...Peer) View {
	return View{Ready: true, Peers: peers, Self: Self{
		Node: IDOfName("self"), Addresses: []netip.Addr{x.node.IPv4, x.node.IPv6}, Blocks: prefixes("10.1.0.0/24"), Routing: mode,
	}}
}

// TestTunnelAddsFamily: a node that has a second family later has a device with an address of each.
func TestTunnelAddsFamily(t *testing.T) {
	s := &source{next: addresses("10.1.0.1")}
	addrs := newTunnelAddresses(s, t.TempDir(), slog.New(slog.DiscardHandler))
	addrs.need(true, prefixes("10.1.0.0/24"))
	if err := addrs.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.next = addresses("10.1.0.1", "fd00::1")
	addrs.need(true, prefixes("10.1.0.0/24", "fd00::/64"))
	err := addrs.reconcile(t.Context())
	if has, _ := addrs.addrs.Get(); err != nil || len(has) != 2 {
		t.Errorf("the node has two families, and the device %v, %v", has, err)
	}
}

// TestTunnelComesAndGoes: a native node has a tunnel while it knows a node that needs one, and for a while afterwards;
// the others hear of its end before it goes, and then nothing of it is left.
func TestTunnelComesAndGoes(t *testing.T) {
	x := newTunnelled(t, cluster.RoutingNative)
	near := peerAt("near", cluster.RoutingNative, addresses("192.0.2.7"), "10.7.0.0/24")
	far := peerAt("far", cluster.RoutingVXLAN, addresses("192.0.2.9"), "10.9.0.0/24")
	reconcile := func(peers ...Peer) {
		t.Helper()
		if err := errors.Join(x.reconcile(x.view(cluster.RoutingNative, peers...)), x.addresses.reconcile(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, device bool, port int, addresses int) {
		t.Helper()
		end, _ := x.end.Get()
		if has := slices.Contains(x.node.LinkNames(t), tunnel.Device); has != device || end.Port != port || len(x.source.has) != addresses || !end.Observed {
			t.Errorf("%s: device %t, end %+v, addresses %v; want device %t, port %d, %d addresses", what, has, end, x.source.has, device, port, addresses)
		}
	}
	reconcile(near)
	is("without need", false, 0, 0)
	reconcile(near, far)
	reconcile(near, far)
	is("with a peer that needs it", true, 8472, 1)
	if state, _ := x.state.Get(); state.Reach[far.Blocks[0]] != ReachTunnel || len(state.Errors) > 0 {
		t.Errorf("state %+v", state)
	}
	reconcile(near)
	is("when the peer is gone", true, 8472, 1)
	if mtu := x.podMTU.Load(); mtu != 1450 {
		t.Errorf("MTU of pods %d", mtu)
	}
	x.begun, x.needed = time.Now().Add(-2*keepTime), time.Now().Add(-2*keepTime)
	reconcile(near)
	is("later", true, 0, 1)
	reconcile(near)
	is("and then", false, 0, 0)
	if _, err := os.Stat(filepath.Join(x.node.Dir, "tunnel.json")); !os.IsNotExist(err) {
		t.Errorf("the file of its addresses: %v", err)
	}
	if _, err := os.Stat(filepath.Join(x.node.BPFRoot, "tunnel")); !os.IsNotExist(err) {
		t.Errorf("pins: %v", err)
	}
	reconcile(near)
	if mtu := x.podMTU.Load(); mtu != 1500 {
		t.Errorf("MTU of pods %d", mtu)
	}
	reconcile(far)
	reconcile(far)
	is("again", true, 8472, 1)
}

// TestTunnelPortNotYetTold: pods of a peer get no route by its own address while it has not told its tunnel's port; a
// peer that changes its mode keeps its route until then.
func TestTunnelPortNotYetTold(t *testing.T) {
	x := newTunnelled(t, cluster.RoutingVXLAN)
	must(t, x.node.Netlink(t).RouteAdd(testutil.HostRoute(x.node.Link(t, "eth0").Attrs().Index, netip.MustParseAddr("192.0.2.7"), 0)))
	routes := func(mode cluster.RoutingMode, port uint16) map[netip.Prefix]hop {
		t.Helper()
		p := peerAt("peer", cluster.RoutingVXLAN, addresses("192.0.2.7"), "10.7.0.0/24")
		p.TunnelPort = port
		x.routesAfter(t, x.view(mode, p))
		have, err := x.kernel.routes()
		must(t, err)
		return have
	}
	block := netip.MustParsePrefix("10.7.0.0/24")
	if have := routes(cluster.RoutingVXLAN, 0); len(have) > 0 {
		t.Errorf("before the port is known: %v", have)
	}
	if have := routes(cluster.RoutingVXLAN, 8472); !have[block].throughTunnel() {
		t.Errorf("with the port: %v", have)
	}
	native := peerAt("peer", cluster.RoutingNative, addresses("192.0.2.7"), "10.7.0.0/24")
	x.routesAfter(t, x.view(cluster.RoutingNative, native))
	if have := routes(cluster.RoutingNative, 0); have[block].via != native.Addresses[0] {
		t.Errorf("after a change of the mode: %v", have)
	}
	if have := routes(cluster.RoutingNative, 8472); !have[block].throughTunnel() {
		t.Errorf("with the port after a change: %v", have)
	}
}

// TestTunnelHold: after a start, what no record asks for stays for a while, but not what contradicts a record.
func TestTunnelHold(t *testing.T) {
	x := newTunnelled(t, cluster.RoutingVXLAN)
	gone, stays := peerAt("gone", cluster.RoutingVXLAN, addresses("192.0.2.7"), "10.7.0.0/24"), peerAt("stays", cluster.RoutingVXLAN, addresses("192.0.2.9"), "10.9.0.0/24", "10.8.0.0/24")
	reconcile := func(peers ...Peer) (routes []string) {
		t.Helper()
		return x.routesAfter(t, x.view(cluster.RoutingVXLAN, peers...))
	}
	if got := reconcile(gone, stays); !slices.Equal(got, []string{"10.7.0.0/24", "10.8.0.0/24", "10.9.0.0/24"}) {
		t.Errorf("routes %v", got)
	}
	stays.Blocks = prefixes("10.9.0.0/24")
	if got := reconcile(stays); !slices.Equal(got, []string{"10.7.0.0/24", "10.9.0.0/24"}) {
		t.Errorf("without a record of one: routes %v", got)
	}
	x.begun = time.Now().Add(-2 * keepTime)
	if got := reconcile(stays); !slices.Equal(got, []string{"10.9.0.0/24"}) {
		t.Errorf("later: routes %v", got)
	}
	owners, err := x.tunnel.Owners()
	if _, ok := owners[netip.MustParsePrefix("192.0.2.7/32")]; ok || err != nil {
		t.Errorf("the address of the node that is gone is there, %v", err)
	}
}

// TestRoutesOfDeletedNode: after a start, leftovers of a deleted node go at once.
func TestRoutesOfDeletedNode(t *testing.T) {
	for name, mode := range map[string]cluster.RoutingMode{"by its address": cluster.RoutingNative, "by the tunnel": cluster.RoutingVXLAN} {
		t.Run(name, func(t *testing.T) {
			x := newTunnelled(t, mode)
			must(t, x.node.Netlink(t).RouteAdd(testutil.HostRoute(x.node.Link(t, "eth0").Attrs().Index, netip.MustParseAddr("192.0.2.7"), 0)))
			gone := peerAt("gone", mode, addresses("192.0.2.7"), "10.7.0.0/24")
			if got := x.routesAfter(t, x.view(mode, gone)); !slices.Equal(got, []string{"10.7.0.0/24"}) {
				t.Errorf("routes %v", got)
			}
			clear(x.published) // as in a new agent
			v := x.view(mode)
			if got := x.routesAfter(t, v); !slices.Equal(got, []string{"10.7.0.0/24"}) {
				t.Errorf("without its record: routes %v", got)
			}
			v.Deleted = prefixes("10.7.0.0/24", "192.0.2.7/32")
			if got := x.routesAfter(t, v); len(got) > 0 {
				t.Errorf("when it was deleted: routes %v", got)
			}
			owners, err := x.tunnel.Owners()
			must(t, err)
			for _, prefix := range v.Deleted {
				if _, ok := owners[prefix]; ok {
					t.Errorf("when it was deleted: the tunnel has a node for %s", prefix)
				}
			}
		})
	}
}

// routesAfter are the routes to other nodes after a round.
func (x *tunnelled) routesAfter(t *testing.T, view View) (routes []string) {
	t.Helper()
	must(t, x.reconcile(view))
	have, err := x.kernel.routes()
	must(t, err)
	owners, err := x.tunnel.Owners()
	must(t, err)
	for dst, to := range have {
		if _, ok := owners[dst]; !ok && to.throughTunnel() {
			t.Errorf("a route to %s, and no node", dst)
		}
		routes = append(routes, dst.String())
	}
	slices.Sort(routes)
	return routes
}

// TestTunnelAddresses: they are kept over starts, also when the disk is lost, and given back when the node's blocks are
// others.
func TestTunnelAddresses(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
	begin := func(s *source, ofDevice ...netip.Addr) *tunnelAddresses {
		a := newTunnelAddresses(s, dir, log)
		a.begin(ofDevice)
		return a
	}
	s := &source{next: addresses("10.1.0.1", "fd01::1")}
	a := begin(s)
	a.need(true, prefixes("10.1.0.0/24", "fd01::/64"))
	if err := a.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*source{"from the file": {}, "again": {}} {
		if got, _ := begin(s).addrs.Get(); !slices.Equal(got, addresses("10.1.0.1", "fd01::1")) || !slices.Equal(s.has, got) {
			t.Errorf("%s: addresses %v, taken %v", name, got, s.has)
		}
	}
	if got, _ := begin(&source{err: errors.New("taken")}).addrs.Get(); got != nil {
		t.Errorf("addresses %v that cannot be had", got)
	}
	a.need(true, prefixes("10.9.0.0/24"))
	s.next = addresses("10.9.0.1")
	if err := a.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := a.addrs.Get(); !slices.Equal(got, addresses("10.9.0.1")) {
		t.Errorf("addresses %v with other blocks", got)
	}
	if err := os.WriteFile(a.path, []byte(`["127.0.0.1"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := begin(&source{}, addresses("10.9.0.7")...).addrs.Get(); !slices.Equal(got, addresses("10.9.0.7")) {
		t.Errorf("addresses %v, want those of the device when the file is damaged", got)
	}
	if err := errors.Join(a.release(), a.release()); err != nil || s.has != nil {
		t.Errorf("after drop: %v, error %v", s.has, err)
	}
}
