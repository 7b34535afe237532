package link_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// secondSetup is what Attach makes of a later interface of a container.
func secondSetup(ep endpoint.Endpoint) []string {
	name, table, metric := ep.Container.Name, 80000+ep.Container.Index, 1024+ep.Container.Index
	ipv4, ipv6, mac := ep.Addresses.IPv4, ep.Addresses.IPv6, ep.Host.MAC
	return []string{
		fmt.Sprintf("address %s %s/32 noprefixroute=true", name, ipv4),
		fmt.Sprintf("address %s %s/128 noprefixroute=true nodad=true tentative=false", name, ipv6),
		fmt.Sprintf("link %s veth up=true mtu=1500 queues=1,1 mac=%s", name, ep.Container.MAC),
		fmt.Sprintf("neighbour %s 169.254.1.1 mac=%s", name, mac),
		fmt.Sprintf("neighbour %s fe80::1 mac=%s", name, mac),
		fmt.Sprintf("route %s 0.0.0.0/0 type=1 via=169.254.1.1 onlink=true metric=%d table=254", name, metric),
		fmt.Sprintf("route %s ::/0 type=1 via=fe80::1 onlink=false metric=%d table=254", name, metric),
		fmt.Sprintf("route %s 0.0.0.0/0 type=1 via=169.254.1.1 onlink=true metric=0 table=%d", name, table),
		fmt.Sprintf("route %s ::/0 type=1 via=fe80::1 onlink=false metric=1024 table=%d", name, table),
		fmt.Sprintf("route %s %s/128 type=2 via=<nil> onlink=false metric=1024 table=255", name, ipv6),
		fmt.Sprintf("rule 10000 from=%s/32 table=%d protocol=80", ipv4, table),
		fmt.Sprintf("rule 10000 from=%s/128 table=%d protocol=80", ipv6, table),
	}
}

func sourceRule(from netip.Addr, priority, table int, protocol uint8) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family = netlink.FAMILY_V4
	if from.Is6() {
		rule.Family = netlink.FAMILY_V6
	}
	rule.Src, rule.Priority, rule.Table, rule.Protocol = nl.IPNet(hostPrefix(from)), priority, table, protocol
	return rule
}

func both(a, b []string) []string {
	lines := slices.Concat(a, b)
	slices.Sort(lines)
	return lines
}

func TestAttachSecondInterface(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	first := n.attach(t, c, endpointOf("eth0", 1))
	second := n.attach(t, c, endpointOf("net1", 2))
	wantSetup(t, c.Namespace, both(firstSetup(first, 1500), secondSetup(second)))
	for _, ep := range []endpoint.Endpoint{first, second} {
		if again := n.attach(t, c, ep); again != ep {
			t.Errorf("the second time: %+v, want %+v", again, ep)
		}
	}
	wantSetup(t, c.Namespace, both(firstSetup(first, 1500), secondSetup(second)))
}

// The kernel takes the routes with the interface and leaves the rules; the next interface removes them.
func TestAttachRemovesStaleRules(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	first := n.attach(t, c, endpointOf("eth0", 1))
	for i := byte(2); i < 5; i++ {
		n.detach(t, n.attach(t, c, endpointOf("net1", i)))
	}
	var rules int
	for _, line := range setup(t, c.Namespace) {
		if strings.HasPrefix(line, "rule ") {
			rules++
		}
	}
	if rules != 2 {
		t.Errorf("%d rules are left, want those of the last interface", rules)
	}
	foreign := fmt.Sprintf("rule 77 from=10.9.9.9/32 table=%d protocol=%d", 80_099, unix.RTPROT_STATIC)
	rule := sourceRule(netip.MustParseAddr("10.9.9.9"), 77, 80_099, unix.RTPROT_STATIC)
	must(t, c.Netlink(t).RuleAdd(rule))
	second := n.attach(t, c, endpointOf("net1", 4)) // the address of the last one
	wantSetup(t, c.Namespace, both(append(firstSetup(first, 1500), foreign), secondSetup(second)))
}

// ways is a node that reaches the addresses of two interfaces of one container, each by its own host end.
type ways struct {
	*node
	*container
	first, second endpoint.Endpoint
}

func newWays(t *testing.T) *ways {
	t.Helper()
	w := &ways{node: newNode(t), container: newContainer(t)}
	for _, prefix := range []string{"192.0.2.1/32", "2001:db8::1/128"} {
		must(t, w.node.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.MustParsePrefix(prefix))))
	}
	w.first, w.second = w.connect(t, endpointOf("eth0", 1)), w.connect(t, endpointOf("net1", 2))
	return w
}

// connect attaches the interface and does the datapath's part.
func (w *ways) connect(t *testing.T, ep endpoint.Endpoint) endpoint.Endpoint {
	t.Helper()
	ep = w.attach(t, w.container, ep)
	handle := w.node.Netlink(t)
	must(t, handle.LinkSetUp(testutil.LinkAt(ep.Host.Index)))
	for _, addr := range ep.Addresses.List() {
		must(t, handle.RouteReplace(testutil.HostRoute(ep.Host.Index, addr, testutil.RouteProtocol)))
		must(t, handle.NeighSet(testutil.PermanentNeighbour(ep.Host.Index, addr, ep.Container.MAC[:])))
	}
	return ep
}

// received counts the packets that came out of the container by that interface.
func (w *ways) received(t *testing.T, ep endpoint.Endpoint) uint64 {
	t.Helper()
	return w.node.Link(t, ep.Host.Name).Attrs().Statistics.RxPackets
}

// wantAnswers sends requests to the interface's addresses, and wants the answers by the same interface.
func (w *ways) wantAnswers(t *testing.T, ep endpoint.Endpoint) {
	t.Helper()
	for _, addr := range ep.Addresses.List() {
		before := w.received(t, ep)
		for range 5 {
			if err := testutil.Ping(w.node.Namespace, addr, 2*time.Second); err != nil {
				t.Errorf("%s: %v", ep.Container.Name, err)
				return
			}
		}
		if got := w.received(t, ep) - before; got < 5 {
			t.Errorf("%d packets of 5 answers from %s left by %s", got, addr, ep.Container.Name)
		}
	}
}

func (w *ways) wantReached(t *testing.T) {
	t.Helper()
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		if err := testutil.Ping(w.container.Namespace, netip.MustParseAddr(addr), 2*time.Second); err != nil {
			t.Errorf("from the container: %v", err)
		}
	}
}

func TestSecondaryReplyRoute(t *testing.T) {
	w := newWays(t)
	w.wantAnswers(t, w.first)
	w.wantAnswers(t, w.second)
	w.wantReached(t)
}

func TestDetachOneOfTwoInterfaces(t *testing.T) {
	for _, row := range []struct {
		name   string
		choose func(w *ways) (removed, kept *endpoint.Endpoint)
		again  endpoint.Endpoint // in the place of what was removed
	}{
		{"of the first", func(w *ways) (removed, kept *endpoint.Endpoint) { return &w.first, &w.second }, endpointOf("eth0", 1)},
		{"of the second", func(w *ways) (removed, kept *endpoint.Endpoint) { return &w.second, &w.first }, endpointOf("net1", 3)},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWays(t)
			removed, kept := row.choose(w)
			w.detach(t, *removed)
			w.wantAnswers(t, *kept)
			w.wantReached(t)
			*removed = w.connect(t, row.again)
			w.wantAnswers(t, w.first)
			w.wantAnswers(t, w.second)
			wantSetup(t, w.container.Namespace, both(firstSetup(w.first, 1500), secondSetup(w.second)))
		})
	}
}
