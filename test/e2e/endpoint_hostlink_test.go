package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// addBridge makes a bridge on the node.
func (r *rig) addBridge(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return r.node.Netlink(r).LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
}

func TestHostLinkNameInUse(t *testing.T) {
	r := newRig(t)
	elsewhere := testutil.NetNS(t)
	for _, kind := range []string{"a veth that belongs to nobody"} {
		c := testutil.NewContainer(t)
		name := v1.HostInterfaceName(c.ID, c.IfName)
		if _, err := r.node.AddVeth(testutil.Veth{Name: name, MAC: testutil.MAC(2, 9), Peer: elsewhere, PeerName: "other"}); err != nil {
			t.Fatal(err)
		}
		p := r.add(c)
		if err := testutil.Ping(p.Namespace, r.node.IPv6, reach); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := r.cni.Check(c); err != nil {
			t.Errorf("%s: CHECK: %v", kind, err)
		}
		r.cni.MustDel(t, c)
	}
	r.nothingLeft()
}

func TestHostLinkNotVeth(t *testing.T) {
	r := newRig(t)
	host := v1.HostInterfaceName("c1", "eth0")
	if err := r.addBridge(host); err != nil {
		t.Fatal(err)
	}
	bridge := r.node.Link(t, host).Attrs()
	if _, err := r.api.CreateEndpoint(t.Context(), "c1", "eth0", testutil.NetNS(t).File(), v1.EndpointRequest{}); err == nil || !strings.Contains(err.Error(), "bridge") {
		t.Errorf("error %v, want one that names the bridge", err)
	}
	if !r.node.HasLink(t, bridge.Index) {
		t.Error("the bridge is gone")
	}
	if all := r.endpoints(); len(all) > 0 {
		t.Errorf("endpoints: %+v", all)
	}
	if err := r.node.Netlink(t).LinkDel(testutil.LinkAt(bridge.Index)); err != nil {
		t.Fatal(err)
	}
	r.nothingLeft()
}

func TestNodeWithoutUplink(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	if err := node.Netlink(t).LinkDel(node.Link(t, "eth0")); err != nil {
		t.Fatal(err)
	}
	r := rigOn(t, node)
	a, b := r.pod(), r.pod()
	for _, addr := range []struct{ from, to pod }{{a, b}, {b, a}} {
		if err := testutil.Ping(addr.from.Namespace, addr.to.ipv4, reach); err != nil {
			t.Error(err)
		}
		if err := testutil.RoundTrip(addr.from.Namespace, addr.to.Echo(t, addr.to.ipv6), reach); err != nil {
			t.Error(err)
		}
	}
	r.agent.Restart(t)
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

// settled returns an error until the kernel has made the link-local address of the node's uplink, which follows its
// carrier, and has looked whether others have an address of the node.
func settled(node *testutil.Node) error {
	return node.Do(func() error {
		addrs, err := netlink.AddrList(nil, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		linkLocal := false
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				return fmt.Errorf("%s is tentative", a.IPNet)
			}
			linkLocal = linkLocal || a.IP.IsLinkLocalUnicast()
		}
		if !linkLocal {
			return errors.New("the uplink has no link-local address yet")
		}
		return nil
	})
}

func TestNodeSysctls(t *testing.T) {
	t.Parallel()
	testutil.Root(t)
	node := testutil.NewNode(t)
	snapshot := func() (s testutil.HostSnapshot) {
		if err := node.Do(func() (err error) { s, err = testutil.TakeHostSnapshot(); return err }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	testutil.Eventually(t, func() error { return settled(node) })
	before := snapshot()
	r := rigOn(t, node)
	p := r.pod()
	if err := testutil.Ping(p.Namespace, node.IPv4, reach); err != nil {
		t.Error(err)
	}
	r.cni.MustDel(t, p.Container)
	r.agent.Stop(t)
	// The kernel ties accept_redirects to forwarding; accept_ra is 2 where it was 1, so that routers are heard as before.
	expected := regexp.MustCompile(`forward|conf/all/accept_redirects|- .*/conf/(lo|eth0)/accept_ra = "1"|\+ .*/conf/(lo|eth0)/accept_ra = "2"`)
	for line := range strings.Lines(before.Diff(snapshot())) {
		if !expected.MatchString(line) {
			t.Errorf("changed: %s", line)
		}
	}
}

func TestContainerReachesOutside(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	fabric, link := r.node.Fabric.Netlink(t), r.node.Fabric.Link(t, r.node.Name).Attrs().Index
	err := errors.Join(
		fabric.RouteAdd(testutil.GatewayRoute(link, prefixOf(p.ipv4), r.node.IPv4)),
		fabric.RouteAdd(testutil.GatewayRoute(link, prefixOf(p.ipv6), r.node.IPv6)),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.Ping(p.Namespace, testutil.OutsideIPv4, reach); err != nil {
		t.Error(err)
	}
	if err := testutil.RoundTrip(p.Namespace, r.node.Fabric.Echo(t, testutil.OutsideIPv6), reach); err != nil {
		t.Error(err)
	}
}
