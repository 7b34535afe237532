package rtnl_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

func TestOneRouteAndOneNeighbourAreRead(t *testing.T) {
	node, _, host := pair(t)
	for _, text := range []string{"10.0.0.2", "2001:db8::2"} {
		addr := netip.MustParseAddr(text)
		want := rtnl.Route{
			Dst: netip.PrefixFrom(addr, addr.BitLen()), Link: host.Index, Protocol: rtnl.Protocol,
			Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST,
		}
		if addr.Is4() {
			want.Scope = unix.RT_SCOPE_LINK
		} else {
			want.Metric = 1024 // the kernel's default
		}
		neigh := rtnl.Neigh{Link: host.Index, Addr: addr, MAC: podMAC, State: unix.NUD_PERMANENT}
		if err := node.Do(rtnl.AddRoute(want), rtnl.ReplaceNeigh(neigh)); err != nil {
			t.Fatal(err)
		}
		var route rtnl.Route
		var found rtnl.Neigh
		if err := node.Do(rtnl.GetRoute(addr, &route), rtnl.GetNeigh(host.Index, addr, &found)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, route, comparable); diff != "" {
			t.Errorf("route (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(neigh, found, comparable); diff != "" {
			t.Errorf("neighbour (-want +got):\n%s", diff)
		}
		other := addr.Next()
		if err := node.Do(rtnl.GetRoute(other, &route)); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("a route to %s: %v, want ENETUNREACH", other, err)
		}
		if err := node.Do(rtnl.GetNeigh(host.Index, other, &found)); !errors.Is(err, unix.ENOENT) {
			t.Errorf("a neighbour %s: %v, want ENOENT", other, err)
		}
	}
}
