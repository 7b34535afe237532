package datapath_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestStartMakesTheNodeARouter(t *testing.T) {
	n := newNode(t)
	must(t, n.Do(func() error {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			value, err := os.ReadFile("/proc/sys/net/" + name)
			if err != nil || strings.TrimSpace(string(value)) != "1" {
				t.Errorf("%s = %q, error %v, want 1", name, value, err)
			}
		}
		return nil
	}))
}

// A link that cannot be deleted in the doomed group (lo cannot be deleted at all) does not keep others from it.
func TestDetachWorksWhenTheGroupDoesNot(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	must(t, n.conn.Do(rtnl.LinkDownAndGroup(1, 0x706f72)))
	n.detach(t, a)
	var link rtnl.Link
	if err := n.conn.Do(rtnl.LinkByIndex(a.endpoint.Spec.Host.Index, &link)); !errors.Is(err, unix.ENODEV) {
		t.Errorf("the link is there: error %v", err)
	}
}

func TestDetachEndsWithItsContext(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := n.step.Detach(ctx, a.endpoint, endpointmanager.DeleteConfig{})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v or none", err, context.Canceled)
	}
	n.detach(t, a) // and again, with time
	wantState(t, &real{node: n}, attached(0))
}

func TestStopFinishesWhatItBegan(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.step.Detach(ctx, a.endpoint, endpointmanager.DeleteConfig{})
	n.stop(t)
	var link rtnl.Link
	if err := n.conn.Do(rtnl.LinkByIndex(a.endpoint.Spec.Host.Index, &link)); !errors.Is(err, unix.ENODEV) {
		t.Errorf("the link is there after Stop: error %v", err)
	}
}

func TestFailedWiringIsUndone(t *testing.T) {
	n := newNode(t)
	ep := endpointOf(t, 1)
	container := testutil.NetNS(t)
	ep.Spec.Host.Index = n.link(t, container, ep).Index
	// No IPv6 on the link: the last route cannot be made.
	must(t, n.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+ep.Spec.Host.Name+"/disable_ipv6", []byte("1"), 0)
	}))
	if _, err := n.step.Attach(context.Background(), ep); err == nil {
		t.Fatal("attached without an IPv6 route")
	}
	wantState(t, &real{node: n}, datapathtest.State{})
	routes, err := n.conn.Routes(ep.Spec.Host.Index)
	must(t, err)
	neighs, err := n.conn.Neighs(ep.Spec.Host.Index)
	must(t, err)
	for _, neigh := range neighs {
		if neigh.State&unix.NUD_PERMANENT != 0 {
			t.Errorf("neighbour %+v is left", neigh)
		}
	}
	for _, r := range routes {
		if r.Protocol == rtnl.Protocol {
			t.Errorf("route %+v is left", r)
		}
	}
}

func TestPruneRemovesRoutesToOtherAddresses(t *testing.T) {
	n := newNode(t)
	a := n.newPod(t, 1)
	n.attach(t, a)
	stale := rtnl.Route{
		Dst: netip.MustParsePrefix("10.0.0.99/32"), Link: a.endpoint.Spec.Host.Index, Scope: unix.RT_SCOPE_LINK, Protocol: rtnl.Protocol,
	}
	others := stale
	others.Dst, others.Protocol = netip.MustParsePrefix("10.0.0.98/32"), unix.RTPROT_STATIC
	must(t, n.conn.Do(rtnl.AddRoute(stale), rtnl.AddRoute(others)))
	_, err := n.step.Prune(context.Background(), endpoints(a))
	must(t, err)
	routes, err := n.conn.Routes(0)
	must(t, err)
	left := map[netip.Prefix]bool{}
	for _, r := range routes {
		left[r.Dst] = true
	}
	if left[stale.Dst] || !left[others.Dst] || !left[netip.PrefixFrom(a.endpoint.Addresses.IPv4, 32)] {
		t.Errorf("routes left: %v", left)
	}
}
