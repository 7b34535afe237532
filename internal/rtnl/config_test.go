package rtnl_test

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestOneBatchConfiguresAContainer(t *testing.T) {
	_, pod, host := pair(t)
	eth0 := host.Peer
	gw4, gw6 := netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")
	err := pod.Do(
		rtnl.AddAddr(eth0, netip.MustParsePrefix("10.0.0.2/32")),
		rtnl.AddAddr(eth0, netip.MustParsePrefix("2001:db8::2/128")),
		rtnl.ReplaceNeigh(rtnl.Neigh{Link: eth0, Addr: gw4, MAC: hostMAC}),
		rtnl.ReplaceNeigh(rtnl.Neigh{Link: eth0, Addr: gw6, MAC: hostMAC}),
		rtnl.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: gw4, Link: eth0, OnLink: true, MTU: 1300}),
		rtnl.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("::/0"), Gateway: gw6, Link: eth0, Metric: 5}),
	)
	if err != nil {
		t.Fatal(err)
	}
	wantAddrs(t, pod, eth0)
	wantRoutes(t, pod, eth0, gw4, gw6)
	neighs, err := pod.Neighs(eth0)
	neighs = slices.DeleteFunc(neighs, func(n rtnl.Neigh) bool { return n.State&unix.NUD_NOARP != 0 })
	want := []rtnl.Neigh{
		{Link: eth0, Addr: gw4, MAC: hostMAC, State: unix.NUD_PERMANENT},
		{Link: eth0, Addr: gw6, MAC: hostMAC, State: unix.NUD_PERMANENT},
	}
	if diff := cmp.Diff(want, neighs, comparable); diff != "" || err != nil {
		t.Errorf("neighbours (-want +got), %v:\n%s", err, diff)
	}
}

var comparable = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

func wantAddrs(t *testing.T, pod *rtnl.Conn, eth0 int) {
	t.Helper()
	addrs, err := pod.Addrs(eth0)
	addrs = slices.DeleteFunc(addrs, func(a rtnl.Addr) bool { return a.Prefix.Addr().IsLinkLocalUnicast() })
	want := []rtnl.Addr{
		{Link: eth0, Prefix: netip.MustParsePrefix("10.0.0.2/32"), Flags: unix.IFA_F_PERMANENT | unix.IFA_F_NOPREFIXROUTE},
		{Link: eth0, Prefix: netip.MustParsePrefix("2001:db8::2/128"), Flags: unix.IFA_F_PERMANENT | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD},
	}
	if diff := cmp.Diff(want, addrs, comparable); diff != "" || err != nil {
		t.Errorf("addresses (-want +got), %v:\n%s", err, diff)
	}
}

func wantRoutes(t *testing.T, pod *rtnl.Conn, eth0 int, gw4, gw6 netip.Addr) {
	t.Helper()
	routes, err := pod.Routes(eth0)
	routes = slices.DeleteFunc(routes, func(r rtnl.Route) bool { return r.Protocol == unix.RTPROT_KERNEL })
	want := []rtnl.Route{{
		Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: gw4, Link: eth0, OnLink: true, Protocol: unix.RTPROT_BOOT,
		MTU: 1300, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST,
	}, {
		Dst: netip.MustParsePrefix("::/0"), Gateway: gw6, Link: eth0, Protocol: unix.RTPROT_BOOT,
		Metric: 5, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST,
	}}
	if diff := cmp.Diff(want, routes, comparable); diff != "" || err != nil {
		t.Errorf("routes (-want +got), %v:\n%s", err, diff)
	}
}

func TestWhatWasAddedCanBeReplacedAndDeleted(t *testing.T) {
	node, _, host := pair(t)
	addr := netip.MustParsePrefix("10.0.0.1/32")
	route := rtnl.Route{Dst: netip.MustParsePrefix("10.0.0.2/32"), Link: host.Index, Scope: unix.RT_SCOPE_LINK, Protocol: rtnl.Protocol}
	neigh := rtnl.Neigh{Link: host.Index, Addr: netip.MustParseAddr("10.0.0.2"), MAC: podMAC}
	for _, step := range []struct {
		request rtnl.Request
		want    error
	}{
		{rtnl.AddAddr(host.Index, addr), nil},
		{rtnl.AddAddr(host.Index, addr), unix.EEXIST},
		{rtnl.ReplaceAddr(host.Index, addr), nil},
		{rtnl.AddRoute(route), nil},
		{rtnl.AddRoute(route), unix.EEXIST},
		{rtnl.ReplaceRoute(route), nil},
		{rtnl.ReplaceNeigh(neigh), nil},
		{rtnl.ReplaceNeigh(neigh), nil},
		{rtnl.DelNeigh(host.Index, neigh.Addr), nil},
		{rtnl.DelNeigh(host.Index, neigh.Addr), unix.ENOENT},
		{rtnl.DelRoute(route), nil},
		{rtnl.DelRoute(route), unix.ESRCH},
		{rtnl.DelAddr(host.Index, addr), nil},
		{rtnl.DelAddr(host.Index, addr), unix.EADDRNOTAVAIL},
	} {
		if err := node.Do(step.request); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.request.What, err, step.want)
		}
	}
}

func TestLargeBatchIsSplitAndComplete(t *testing.T) {
	ns := testutil.NetNS(t)
	conn := ns.Conn(t)
	var requests []rtnl.Request
	for i := range 1000 {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		requests = append(requests, rtnl.AddAddr(1, netip.PrefixFrom(addr, 32)))
	}
	if err := conn.Do(requests...); err != nil {
		t.Fatal(err)
	}
	if addrs, err := conn.Addrs(1); len(addrs) != 1002 || err != nil {
		t.Errorf("%d addresses, %v, want 1000 and those of lo", len(addrs), err)
	}
}

func TestClosedConnRefuses(t *testing.T) {
	conn := testutil.NetNS(t).Conn(t)
	if err := errors.Join(conn.Close(), conn.Close()); err != nil {
		t.Error(err)
	}
	if _, err := conn.Links(); !errors.Is(err, unix.EBADF) {
		t.Errorf("Links on a closed Conn: %v, want EBADF", err)
	}
}

// TestANamespaceThatNeverHadARouteHasNone: with lo down the kernel has not made the main table yet, and says ENOENT.
func TestANamespaceThatNeverHadARouteHasNone(t *testing.T) {
	testutil.Root(t)
	err := inFreshNamespace(func() error {
		conn, err := rtnl.Dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		routes, err := conn.Routes(0)
		if len(routes) > 0 {
			t.Errorf("routes: %v", routes)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// inFreshNamespace runs f on a thread with a namespace in which nothing was ever configured.
func inFreshNamespace(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread and its namespace end with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}
