package link_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

var _ endpoint.Step = (*link.Step)(nil)

// setup lists the configuration of the namespace: interfaces, addresses, routes, permanent neighbours and rules.
// Objects that the kernel makes by itself are left out.
func setup(t testing.TB, ns *testutil.Namespace) (lines []string) {
	t.Helper()
	names := map[int]string{}
	links, err := ns.Links()
	must(t, err)
	for _, l := range links {
		attrs := l.Attrs()
		if names[attrs.Index] = attrs.Name; attrs.Name != "lo" {
			lines = append(lines, fmt.Sprintf("link %s %s up=%t mtu=%d queues=%d,%d mac=%s",
				attrs.Name, l.Type(), testutil.IsUp(l), attrs.MTU, attrs.NumTxQueues, attrs.NumRxQueues, attrs.HardwareAddr))
		}
	}
	addrs, err := ns.Addrs(0)
	must(t, err)
	for _, a := range addrs {
		if addr := nl.Addr(a.IP); !addr.IsLinkLocalUnicast() && !addr.IsLoopback() {
			line := fmt.Sprintf("address %s %s noprefixroute=%t", names[a.LinkIndex], nl.Prefix(a.IPNet), a.Flags&unix.IFA_F_NOPREFIXROUTE != 0)
			if addr.Is6() {
				line += fmt.Sprintf(" nodad=%t tentative=%t", a.Flags&unix.IFA_F_NODAD != 0, a.Flags&unix.IFA_F_TENTATIVE != 0)
			}
			lines = append(lines, line)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := nl.Dump(func() ([]netlink.Route, error) {
			return ns.Netlink(t).RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		must(t, err)
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL {
				lines = append(lines, fmt.Sprintf("route %s %s type=%d via=%s onlink=%t metric=%d table=%d", names[r.LinkIndex],
					nl.Prefix(r.Dst), r.Type, r.Gw, r.Flags&int(netlink.FLAG_ONLINK) != 0, r.Priority, r.Table))
			}
		}
		rules, err := nl.Dump(func() ([]netlink.Rule, error) { return ns.Netlink(t).RuleList(family) })
		must(t, err)
		for _, r := range rules {
			if r.Src != nil {
				lines = append(lines, fmt.Sprintf("rule %d from=%s table=%d protocol=%d", r.Priority, r.Src, r.Table, r.Protocol))
			}
		}
	}
	neighbours, err := ns.PermanentNeighbours(0)
	must(t, err)
	for _, n := range neighbours {
		lines = append(lines, fmt.Sprintf("neighbour %s %s mac=%s", names[n.LinkIndex], n.IP, n.HardwareAddr))
	}
	slices.Sort(lines)
	return lines
}

// firstSetup is what Attach makes of the first interface of a container.
func firstSetup(ep endpoint.Endpoint, mtu int) []string {
	return []string{
		"address eth0 10.0.0.1/32 noprefixroute=true",
		"address eth0 fd00::1/128 noprefixroute=true nodad=true tentative=false",
		fmt.Sprintf("link eth0 veth up=true mtu=%d queues=1,1 mac=%s", mtu, ep.Container.MAC),
		"neighbour eth0 169.254.1.1 mac=" + ep.Host.MAC.String(),
		"neighbour eth0 fe80::1 mac=" + ep.Host.MAC.String(),
		"route eth0 0.0.0.0/0 type=1 via=169.254.1.1 onlink=true metric=0 table=254",
		"route eth0 ::/0 type=1 via=fe80::1 onlink=false metric=1024 table=254",
		"route eth0 fd00::1/128 type=2 via=<nil> onlink=false metric=1024 table=255",
	}
}

func wantSetup(t testing.TB, ns *testutil.Namespace, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, setup(t, ns)); diff != "" {
		t.Errorf("the namespace (-want +got):\n%s", diff)
	}
}

func TestAttach(t *testing.T) {
	for _, mtu := range []int{0, 1400, 9000} {
		t.Run(fmt.Sprintf("mtu %d", mtu), func(t *testing.T) {
			n, c := newNode(t), newContainer(t)
			ep := endpointOf("eth0", 1)
			ep.Spec.MTU = mtu
			got := n.attach(t, c, ep)
			if mtu == 0 {
				mtu = 1500
			}
			host, eth0 := n.Link(t, got.Host.Name).Attrs(), c.Link(t, "eth0").Attrs()
			want := ep
			want.MTU = mtu
			want.Host = endpoint.Interface{Name: v1.HostInterfaceName("c1", "eth0"), Index: host.Index, MAC: endpoint.MAC(host.HardwareAddr)}
			want.Container = endpoint.Interface{Name: "eth0", Index: eth0.Index, MAC: endpoint.MAC(eth0.HardwareAddr)}
			if got != want {
				t.Errorf("endpoint %+v, want %+v", got, want)
			}
			hostMAC, containerMAC := v1.InterfaceMACs("c1", "eth0")
			if got.Host.MAC.String() != hostMAC || got.Container.MAC.String() != containerMAC {
				t.Errorf("MACs %s and %s, want %s and %s", got.Host.MAC, got.Container.MAC, hostMAC, containerMAC)
			}
			if host.Alias != "c1:eth0 began=12345" || host.ParentIndex != eth0.Index || eth0.ParentIndex != host.Index {
				t.Errorf("alias %q, peer %d; the container's end is %d with the peer %d", host.Alias, host.ParentIndex, eth0.Index, eth0.ParentIndex)
			}
			wantSetup(t, c.Namespace, firstSetup(got, mtu))
			// The host end passes nothing before the datapath brings it up.
			wantSetup(t, n.Namespace, []string{fmt.Sprintf("link %s veth up=false mtu=%d queues=1,1 mac=%s", got.Host.Name, mtu, hostMAC)})
		})
	}
}

func TestAttachOneFamily(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := endpointOf("eth0", 1)
	ep.Addresses.IPv6 = netip.Addr{}
	n.attach(t, c, ep)
	for _, line := range setup(t, c.Namespace) {
		if strings.Contains(line, "fd00") || strings.Contains(line, "::/0") || strings.Contains(line, "fe80") {
			t.Errorf("without an IPv6 address: %s", line)
		}
	}
}

func TestAttachRoutesOfIPAMPlugin(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := endpointOf("eth0", 1)
	var err error
	ep.IPAMResult, err = endpoint.IPAMResult{Routes: []netip.Prefix{
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("2001:db8::/32"),
	}}.Encode()
	must(t, err)
	ep = n.attach(t, c, ep)
	want := append(firstSetup(ep, 1500),
		"route eth0 192.168.0.0/16 type=1 via=169.254.1.1 onlink=true metric=0 table=254",
		"route eth0 2001:db8::/32 type=1 via=fe80::1 onlink=false metric=1024 table=254")
	slices.Sort(want)
	wantSetup(t, c.Namespace, want)
}

func TestAttachTwice(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	if again := n.attach(t, c, ep); again != ep {
		t.Errorf("the second time: %+v, want %+v", again, ep)
	}
	wantSetup(t, c.Namespace, firstSetup(ep, 1500))
}

func TestAttachNameTaken(t *testing.T) {
	n, c, other := newNode(t), newContainer(t), testutil.NetNS(t)
	foreign := addVeth(t, c.Namespace, "eth0", other, "peer")
	_, err := n.step.Attach(t.Context(), endpointOf("eth0", 1), c.netns)
	if !errors.Is(err, link.ErrNameTaken) {
		t.Errorf("error %v, want %v", err, link.ErrNameTaken)
	}
	if !c.HasLink(t, foreign) {
		t.Error("the other interface of that name is gone")
	}
	wantLinks(t, n.Namespace)
}

// The requested name is taken by a foreign interface, while the pair of an earlier attempt for the attachment is on the
// node: the container's end was renamed.
func TestAttachNameTakenAfterEarlierAttempt(t *testing.T) {
	n, c, other := newNode(t), newContainer(t), testutil.NetNS(t)
	earlier := n.attach(t, c, endpointOf("eth0", 1))
	must(t, c.Netlink(t).LinkSetDown(testutil.LinkAt(earlier.Container.Index)))
	must(t, c.Netlink(t).LinkSetName(testutil.LinkAt(earlier.Container.Index), "renamed"))
	foreign := addVeth(t, c.Namespace, "eth0", other, "peer")
	_, err := n.step.Attach(t.Context(), endpointOf("eth0", 1), c.netns)
	if !errors.Is(err, link.ErrNameTaken) || !c.HasLink(t, foreign) {
		t.Errorf("error %v, want %v, and the foreign interface there: %t", err, link.ErrNameTaken, c.HasLink(t, foreign))
	}
	wantLinks(t, n.Namespace)
}

func TestAttachReplacesEarlierAttempt(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	earlier := n.attach(t, c, endpointOf("eth0", 1))
	again := n.attach(t, c, endpointOf("eth0", 1)) // the agent died before it recorded the link
	if again.Host.Index == earlier.Host.Index || n.HasLink(t, earlier.Host.Index) {
		t.Errorf("the host end %d of the earlier attempt is there, the new one is %d", earlier.Host.Index, again.Host.Index)
	}
	wantLinks(t, n.Namespace, again.Host.Name)
	wantSetup(t, c.Namespace, firstSetup(again, 1500))
}

func TestAttachForeignHostEnd(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	foreign := addVeth(t, n.Namespace, "eth9", testutil.NetNS(t), "peer")
	must(t, n.Netlink(t).LinkAddAltName(testutil.LinkAt(foreign), v1.HostInterfaceName("c1", "eth0")))
	_, err := n.step.Attach(t.Context(), endpointOf("eth0", 1), c.netns)
	if !errors.Is(err, link.ErrForeign) {
		t.Errorf("error %v, want %v", err, link.ErrForeign)
	}
	n.detach(t, endpointOf("eth0", 1))
	wantLinks(t, n.Namespace, "eth9")
	wantLinks(t, c.Namespace)
}

func TestAttachIPv6Disabled(t *testing.T) {
	for _, which := range []string{"all", "default"} {
		n, c := newNode(t), newContainer(t)
		must(t, c.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0)
		}))
		ep := n.attach(t, c, endpointOf("eth0", 1))
		wantSetup(t, c.Namespace, firstSetup(ep, 1500))
		must(t, c.Do(func() error {
			value, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + which + "/disable_ipv6")
			if strings.TrimSpace(string(value)) != "1" {
				t.Errorf("disable_ipv6 of %s is %q: more than the one interface was changed", which, value)
			}
			return err
		}))
	}
}

func TestAttachWithoutNamespace(t *testing.T) {
	n := newNode(t)
	if _, err := n.step.Attach(t.Context(), endpointOf("eth0", 1), nil); !errors.Is(err, link.ErrNoNamespace) {
		t.Errorf("error %v, want %v", err, link.ErrNoNamespace)
	}
	wantLinks(t, n.Namespace)
}

// The runtime removes the container while its ADD runs. The descriptor keeps the namespace until the step is done.
func TestAttachNamespaceEnds(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	c.Close()
	ep, err := n.step.Attach(t.Context(), endpointOf("eth0", 1), c.netns)
	must(t, err)
	must(t, c.netns.Close())
	testutil.Eventually(t, func() error {
		if n.HasLink(t, ep.Host.Index) {
			return errors.New("the host end is there")
		}
		return nil
	})
	if _, err := n.step.Restore(t.Context(), ep); !errors.Is(err, link.ErrNoLink) {
		t.Errorf("restore: error %v, want %v", err, link.ErrNoLink)
	}
	n.detach(t, ep)
}

func TestNotStarted(t *testing.T) {
	c := newContainer(t)
	step := newNode(t).step
	must(t, step.Stop(t.Context()))
	ep := endpointOf("eth0", 1)
	_, attachErr := step.Attach(t.Context(), ep, c.netns)
	_, restoreErr := step.Restore(t.Context(), ep)
	_, pruneErr := step.Prune(t.Context(), nil)
	_, surveyErr := step.Survey(t.Context(), nil)
	for name, err := range map[string]error{
		"attach": attachErr, "restore": restoreErr, "prune": pruneErr, "survey": surveyErr,
		"detach": step.Detach(t.Context(), ep, endpoint.DeleteConfig{}), "remove": step.Remove(t.Context(), 1),
	} {
		if !errors.Is(err, link.ErrNotStarted) {
			t.Errorf("%s: error %v, want %v", name, err, link.ErrNotStarted)
		}
	}
}
