package datapath_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// node is a network namespace with a running datapath.
type node struct {
	*testutil.Namespace
	conn     *rtnl.Conn
	cfg      datapath.Config
	datapath *datapath.Datapath
	step     *datapath.Step
	mtu      uint32 // of new links; 0 for the kernel's default
}

func newNode(t testing.TB) *node {
	t.Helper()
	cfg := datapath.DefaultConfig()
	cfg.BPFRoot = testutil.BPFFS(t) + "/porin"
	n := &node{Namespace: testutil.NetNS(t), cfg: cfg}
	n.conn = n.Conn(t)
	n.start(t)
	return n
}

// start starts a datapath as an agent does that finds what the last one left.
func (n *node) start(t testing.TB) {
	t.Helper()
	if err := n.tryStart(t, func(*datapath.Datapath) {}); err != nil {
		t.Fatal(err)
	}
}

// tryStart starts a datapath after change had a look at it.
func (n *node) tryStart(t testing.TB, change func(*datapath.Datapath)) error {
	t.Helper()
	d, err := datapath.New(n.cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	change(d)
	if err := n.Do(func() error { return d.Start(context.Background()) }); err != nil {
		return err
	}
	n.datapath, n.step = d, datapath.NewStep(d.Links(), d.Maps(), d, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { n.stop(t) }) // twice is fine
	return nil
}

func (n *node) stop(t testing.TB) {
	t.Helper()
	if err := n.datapath.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// pod is a container with its veth pair, addresses and routes, as the CNI plugin makes them.
type pod struct {
	*testutil.Namespace
	conn     *rtnl.Conn
	endpoint endpointmanager.Endpoint
}

// newPod makes pod number i, which is not attached yet.
func (n *node) newPod(t testing.TB, i int) *pod {
	t.Helper()
	p := &pod{Namespace: testutil.NetNS(t), endpoint: endpointOf(t, i)}
	p.conn = p.Conn(t)
	host, eth0 := n.link(t, p.Namespace, p.endpoint), 0
	p.endpoint.Spec.Host.Index, eth0 = host.Index, host.Peer
	gw4, gw6, mac := v1.GatewayIPv4, v1.GatewayIPv6, rtnl.MAC(p.endpoint.Spec.Host.MAC)
	err := p.conn.Do(
		rtnl.LinkUp(eth0),
		rtnl.AddAddr(eth0, netip.PrefixFrom(p.endpoint.Addresses.IPv4, 32)),
		rtnl.AddAddr(eth0, netip.PrefixFrom(p.endpoint.Addresses.IPv6, 128)),
		rtnl.ReplaceNeigh(rtnl.Neigh{Link: eth0, Addr: gw4, MAC: mac}),
		rtnl.ReplaceNeigh(rtnl.Neigh{Link: eth0, Addr: gw6, MAC: mac}),
		rtnl.ReplaceRoute(rtnl.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: gw4, Link: eth0, OnLink: true}),
		rtnl.ReplaceRoute(rtnl.Route{Dst: netip.MustParsePrefix("::/0"), Gateway: gw6, Link: eth0}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// link makes the veth pair of an endpoint with the container's end in a namespace.
func (n *node) link(t testing.TB, container *testutil.Namespace, ep endpointmanager.Endpoint) (host rtnl.Link) {
	t.Helper()
	err := n.conn.Do(
		rtnl.NewVeth(rtnl.Veth{
			Name: ep.Spec.Host.Name, MAC: rtnl.MAC(ep.Spec.Host.MAC), MTU: n.mtu,
			Peer: rtnl.VethPeer{Name: "eth0", MAC: rtnl.MAC(ep.Spec.Container.MAC), NetNS: container.FD()},
		}),
		rtnl.LinkByName(ep.Spec.Host.Name, &host),
	)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// endpointOf is endpoint number i, all of it made up but the index of its link.
func endpointOf(t testing.TB, i int) endpointmanager.Endpoint {
	t.Helper()
	a := endpointmanager.Attachment{ContainerID: fmt.Sprintf("container-%d", i), IfName: "eth0"}
	hostMAC, containerMAC := v1.InterfaceMACs(a.ContainerID, a.IfName)
	mac := func(text string) endpointmanager.MAC {
		mac, err := endpointmanager.ParseMAC(text)
		if err != nil {
			t.Fatal(err)
		}
		return mac
	}
	return endpointmanager.Endpoint{
		ID: uint16(i),
		Spec: endpointmanager.Spec{
			Attachment: a,
			Host:       endpointmanager.Interface{Name: v1.HostInterfaceName(a.ContainerID, a.IfName), MAC: mac(hostMAC)},
			Container:  endpointmanager.Interface{Name: "eth0", MAC: mac(containerMAC)},
		},
		Addresses: endpointmanager.Addresses{
			IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			IPv6: netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)}),
		},
	}
}

func (n *node) attach(t testing.TB, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := n.step.Attach(context.Background(), p.endpoint); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) detach(t testing.TB, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		if err := n.step.Detach(context.Background(), p.endpoint, endpointmanager.DeleteConfig{}); err != nil {
			t.Fatal(err)
		}
	}
}
