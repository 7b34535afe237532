package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// eth0 reads a container's interface.
func (p pod) eth0(t *testing.T) (conn *rtnl.Conn, link rtnl.Link) {
	t.Helper()
	conn = p.Conn(t)
	if err := conn.Do(rtnl.LinkByName(p.IfName, &link)); err != nil {
		t.Fatal(err)
	}
	return conn, link
}

func TestAContainerHasItsAddressesAloneAndOneWayOut(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	ep := r.endpoints()[0]
	conn, link := p.eth0(t)
	addrs, err1 := conn.Addrs(link.Index)
	routes, err2 := conn.Routes(link.Index)
	neighs, err3 := conn.Neighs(link.Index)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	got := []string{fmt.Sprintf("mac %s mtu %d up %v", link.MAC, link.MTU, link.Up())}
	for _, a := range addrs {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			got = append(got, "address "+a.Prefix.String())
		}
	}
	for _, r := range routes {
		if r.Dst.Bits() == 0 {
			got = append(got, fmt.Sprintf("default %s via %s", r.Dst, r.Gateway))
		} else if a := r.Dst.Addr(); !a.IsLinkLocalUnicast() && !a.IsMulticast() && r.Type == unix.RTN_UNICAST && r.Table == unix.RT_TABLE_MAIN {
			got = append(got, "route "+r.Dst.String())
		}
	}
	for _, n := range neighs {
		if n.State&unix.NUD_PERMANENT != 0 {
			got = append(got, fmt.Sprintf("neighbour %s is %s", n.Addr, n.MAC))
		}
	}
	want := []string{
		fmt.Sprintf("mac %s mtu 1500 up true", ep.Container.MAC),
		"address " + p.ipv4.String() + "/32", "address " + p.ipv6.String() + "/128",
		"default 0.0.0.0/0 via " + v1.GatewayIPv4.String(), "default ::/0 via " + v1.GatewayIPv6.String(),
		"neighbour " + v1.GatewayIPv4.String() + " is " + ep.Host.MAC, "neighbour " + v1.GatewayIPv6.String() + " is " + ep.Host.MAC,
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("in the container (-want +got):\n%s", diff)
	}
}

func TestTheResultOfADDSaysWhatWasMade(t *testing.T) {
	r := newRig(t)
	cni := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{
		"mtu": 1400, "dns": map[string]any{"nameservers": []string{"10.96.0.10"}, "search": []string{"cluster.local"}},
	}})
	c := testutil.NewContainer(t)
	result := cni.MustAdd(t, c)
	ep := r.endpoints()[0]
	_, link := pod{Container: c}.eth0(t)
	var host rtnl.Link
	if err := r.node.Conn(t).Do(rtnl.LinkByName(ep.Host.Name, &host)); err != nil {
		t.Fatal(err)
	}
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
		fmt.Sprintf("%s %s  1400", host.Name, host.MAC), fmt.Sprintf("eth0 %s %s 1400", link.MAC, c.Path()),
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

// TestCHECKNamesEveryDifference breaks one thing after the other, in fresh containers.
func TestCHECKNamesEveryDifference(t *testing.T) {
	r := newRig(t)
	all4, all6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	for name, c := range map[string]struct {
		words string
		spoil func(p pod, inside, node *rtnl.Conn, eth0 rtnl.Link) error
	}{
		"no IPv4 route": {"route to 0.0.0.0/0", func(_ pod, inside, _ *rtnl.Conn, eth0 rtnl.Link) error {
			return inside.Do(rtnl.DelRoute(rtnl.Route{Dst: all4, Link: eth0.Index}))
		}},
		"no IPv6 route": {"route to ::/0", func(_ pod, inside, _ *rtnl.Conn, eth0 rtnl.Link) error {
			return inside.Do(rtnl.DelRoute(rtnl.Route{Dst: all6, Link: eth0.Index}))
		}},
		"no neighbour": {"neighbour " + v1.GatewayIPv6.String(), func(_ pod, inside, _ *rtnl.Conn, eth0 rtnl.Link) error {
			return inside.Do(rtnl.DelNeigh(eth0.Index, v1.GatewayIPv6))
		}},
		"down in the container": {"eth0 is down", func(_ pod, inside, _ *rtnl.Conn, eth0 rtnl.Link) error {
			return inside.Do(rtnl.LinkDown(eth0.Index))
		}},
		"down on the node": {"is down on the node", func(_ pod, _, node *rtnl.Conn, eth0 rtnl.Link) error {
			return node.Do(rtnl.LinkDown(eth0.Peer))
		}},
		"no interface": {"eth0 is missing in the container", func(_ pod, inside, _ *rtnl.Conn, eth0 rtnl.Link) error {
			return inside.Do(rtnl.DelLink(eth0.Index))
		}},
		"no endpoint": {"no such endpoint", func(p pod, _, _ *rtnl.Conn, _ rtnl.Link) error {
			_, err := r.api.DeleteContainer(t.Context(), v1.DeleteRequest{ContainerID: p.ID})
			return err
		}},
	} {
		p := r.pod()
		conn, eth0 := p.eth0(t)
		if err := c.spoil(p, conn, r.node.Conn(t), eth0); err != nil {
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
