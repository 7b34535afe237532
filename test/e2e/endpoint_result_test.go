package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// eth0 reads a container's interface.
func (p pod) eth0(t *testing.T) *netlink.LinkAttrs {
	t.Helper()
	return p.Link(t, p.IfName).Attrs()
}

func TestContainerInterface(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	ep := r.endpoints()[0]
	link := p.eth0(t)
	addrs, err1 := p.Addrs(link.Index)
	routes, err2 := p.Routes(link.Index)
	neighbours, err3 := p.PermanentNeighbours(link.Index)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	got := []string{fmt.Sprintf("mac %s mtu %d flags %s", link.HardwareAddr, link.MTU, link.Flags&net.FlagUp)}
	for _, a := range addrs {
		if !a.IP.IsLinkLocalUnicast() {
			got = append(got, "address "+a.IPNet.String())
		}
	}
	for _, r := range routes {
		if bits, _ := r.Dst.Mask.Size(); bits == 0 {
			got = append(got, fmt.Sprintf("default %s via %s", r.Dst, r.Gw))
		} else if !r.Dst.IP.IsLinkLocalUnicast() && !r.Dst.IP.IsMulticast() {
			got = append(got, "route "+r.Dst.String())
		}
	}
	for _, n := range neighbours {
		got = append(got, fmt.Sprintf("neighbour %s is %s", n.IP, n.HardwareAddr))
	}
	want := []string{
		fmt.Sprintf("mac %s mtu 1500 flags up", ep.Container.MAC),
		"address " + p.ipv4.String() + "/32", "address " + p.ipv6.String() + "/128",
		"default 0.0.0.0/0 via " + v1.GatewayIPv4.String(), "default ::/0 via " + v1.GatewayIPv6.String(),
		"neighbour " + v1.GatewayIPv4.String() + " is " + ep.Host.MAC.String(), "neighbour " + v1.GatewayIPv6.String() + " is " + ep.Host.MAC.String(),
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("in the container (-want +got):\n%s", diff)
	}
}

func TestADDResult(t *testing.T) {
	r := newRig(t)
	cni := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{
		"mtu": 1400, "dns": map[string]any{"nameservers": []string{"10.96.0.10"}, "search": []string{"cluster.local"}},
	}})
	c := testutil.NewContainer(t)
	result := cni.MustAdd(t, c)
	ep := r.endpoints()[0]
	link, host := pod{Container: c}.eth0(t), r.node.Link(t, ep.Host.Name).Attrs()
	if link.MTU != 1400 || host.MTU != 1400 {
		t.Errorf("MTU %d in the container, %d on the node, want 1400", link.MTU, host.MTU)
	}
	var got []string
	for _, i := range result.Interfaces {
		got = append(got, fmt.Sprintf("%s %s %s %d", i.Name, i.Mac, i.Sandbox, i.Mtu))
	}
	for _, ip := range result.IPs {
		got = append(got, fmt.Sprintf("%s via %s on %d", ip.Address.String(), ip.Gateway, *ip.Interface))
	}
	for _, route := range result.Routes {
		got = append(got, fmt.Sprintf("%s via %s", route.Dst.String(), route.GW))
	}
	got = append(got, fmt.Sprint(result.DNS.Nameservers, result.DNS.Search))
	want := []string{
		fmt.Sprintf("%s %s  1400", host.Name, host.HardwareAddr), fmt.Sprintf("eth0 %s %s 1400", link.HardwareAddr, c.Path()),
		fmt.Sprintf("%s/32 via %s on 1", ep.Addresses.IPv4, v1.GatewayIPv4), fmt.Sprintf("%s/128 via %s on 1", ep.Addresses.IPv6, v1.GatewayIPv6),
		fmt.Sprintf("0.0.0.0/0 via %s", v1.GatewayIPv4), fmt.Sprintf("::/0 via %s", v1.GatewayIPv6),
		"[10.96.0.10] [cluster.local]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	cni.MustDel(t, c)
	r.nothingLeft()
}

// TestCHECKDifferences breaks one thing after the other, in fresh containers.
func TestCHECKDifferences(t *testing.T) {
	r := newRig(t)
	all4, all6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	for name, c := range map[string]struct {
		words string
		spoil func(p pod, inside, node *netlink.Handle, eth0 netlink.Link) error
	}{
		"no IPv4 route": {"route to 0.0.0.0/0", func(_ pod, inside, _ *netlink.Handle, eth0 netlink.Link) error {
			return inside.RouteDel(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: nl.IPNet(all4)})
		}},
		"no IPv6 route": {"route to ::/0", func(_ pod, inside, _ *netlink.Handle, eth0 netlink.Link) error {
			return inside.RouteDel(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: nl.IPNet(all6)})
		}},
		"no neighbour": {"neighbour " + v1.GatewayIPv6.String(), func(_ pod, inside, _ *netlink.Handle, eth0 netlink.Link) error {
			return inside.NeighDel(testutil.PermanentNeighbour(eth0.Attrs().Index, v1.GatewayIPv6, nil))
		}},
		"down in the container": {"eth0 is down", func(_ pod, inside, _ *netlink.Handle, eth0 netlink.Link) error {
			return inside.LinkSetDown(eth0)
		}},
		"unknown to the programs": {"map-entry-missing", func(p pod, _, _ *netlink.Handle, _ netlink.Link) error {
			return r.pinned(bpf.Endpoints).Delete(abi.AddrOf(p.ipv4))
		}},
		"no interface": {"eth0 is missing in the container", func(_ pod, inside, _ *netlink.Handle, eth0 netlink.Link) error {
			return inside.LinkDel(eth0)
		}},
		"no endpoint": {"no such endpoint", func(p pod, _, _ *netlink.Handle, _ netlink.Link) error {
			_, err := r.api.DeleteContainer(t.Context(), v1.DeleteRequest{ContainerID: p.ID})
			return err
		}},
	} {
		p := r.pod()
		if err := c.spoil(p, p.Netlink(t), r.node.Netlink(t), p.Link(t, "eth0")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := r.cni.Check(p.Container); err == nil {
			t.Errorf("%s: CHECK finds nothing", name)
		} else {
			failedWith(t, err, c.words)
		}
		r.cni.MustDel(t, p.Container)
	}
	r.nothingLeft()
}
