package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func TestNodeIPv4Only(t *testing.T) { oneFamily(t, "10.9.0.0/24", true) }
func TestNodeIPv6Only(t *testing.T) { oneFamily(t, "fd00:9::/64", false) }

// oneFamily attaches two containers to a node that has addresses of one family to give.
func oneFamily(t *testing.T, prefix string, four bool) {
	t.Helper()
	r := newRig(t, "--ipam-pod-cidr="+prefix)
	a, b := r.pod(), r.pod()
	to, own, none := b.ipv4, r.node.IPv4, b.ipv6
	if !four {
		to, own, none = b.ipv6, r.node.IPv6, b.ipv4
	}
	if !netip.MustParsePrefix(prefix).Contains(to) || none.IsValid() {
		t.Fatalf("the container has %s and %s", b.ipv4, b.ipv6)
	}
	for _, addr := range []netip.Addr{to, own} {
		if err := testutil.Ping(a.Namespace, addr, reach); err != nil {
			t.Error(err)
		}
	}
	for name, from := range map[string]*testutil.Namespace{"the other container": a.Namespace, "the node": r.node.Namespace} {
		if err := testutil.RoundTrip(from, b.Echo(t, to), reach); err != nil {
			t.Errorf("TCP from %s: %v", name, err)
		}
	}
	onlyOf(t, b, four)
	if err := r.cni.Check(a.Container); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	r.agent.Restart(t)
	if err := testutil.Ping(a.Namespace, to, reach); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

// onlyOf checks that the container has addresses and default routes of one family.
func onlyOf(t *testing.T, p pod, four bool) {
	t.Helper()
	eth0 := p.Link(t, "eth0").Attrs()
	addrs, err := p.Addrs(eth0.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if addr := nl.Addr(a.IP); addr.Is4() != four && !addr.IsLinkLocalUnicast() {
			t.Errorf("the container has %s", addr)
		}
	}
	routes, err := p.Routes(eth0.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if dst := nl.Prefix(r.Dst); dst.Bits() == 0 && dst.Addr().Is4() != four {
			t.Errorf("the container has a route to %s", dst)
		}
	}
}

func TestTwoPrefixesOfFamily(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/30,10.8.0.0/30", "--ipam-pod-cidr=10.7.0.0/30")
	var got []string
	for range 3 {
		got = append(got, r.pod().ipv4.String())
	}
	if want := "10.9.0.2 10.8.0.2 10.7.0.2"; strings.Join(got, " ") != want {
		t.Errorf("addresses %v, want %s", got, want)
	}
	refused(t, r, testutil.NewContainer(t), "10.7.0.0/30")
}
