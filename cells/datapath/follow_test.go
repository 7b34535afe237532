package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam/ipamtest"
	"porin.dev/porin/internal/reconcile"
	"porin.dev/porin/internal/testutil"
)

// follow runs Follow until the test ends, and waits until it repairs these endpoints.
func (c *checkedNode) follow(t *testing.T, eps []endpoint.Endpoint) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.checker.Follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ends with %v", err)
		}
	})
	for _, ep := range eps {
		// Once: Follow compares all when it begins to watch, and after five repairs an owner waits.
		must(t, c.Netlink(t).NeighDel(testutil.PermanentNeighbour(ep.Host.Index, ep.Addresses.IPv4, nil)))
		testutil.Eventually(t, c.healthy)
	}
}

// healthy returns the first finding.
func (c *checkedNode) healthy() error {
	findings, err := c.checker.Examine(context.Background(), "")
	if err == nil && len(findings) > 0 {
		err = fmt.Errorf("found %d, the first is %s: %s", len(findings), textOf(findings[0]), findings[0].Detail)
	}
	return err
}

// soon is how long a repair may take on a busy machine. The agent promises a second.
const soon = time.Second

func TestFollowRepairs(t *testing.T) {
	c, pods := newCheckedNode(t, 2)
	c.follow(t, c.List()[:1])
	rows := slices.DeleteFunc(slices.Clone(breakages), func(b breakage) bool { return strings.HasPrefix(b.kinds, "map-entry") })
	rows = append(rows, breakage{name: "the link goes down and up", do: func(t *testing.T, n *node, p *pod) {
		// The kernel removes the IPv4 routes without a notification of them.
		must(t, n.Netlink(t).LinkSetDown(testutil.LinkAt(p.index())))
		must(t, n.Netlink(t).LinkSetUp(testutil.LinkAt(p.index())))
	}})
	for _, row := range rows {
		p := c.newPod(t, 10+len(c.List())) // an owner that has all its repairs left
		p.endpoint.State = endpoint.Ready
		c.attach(t, p)
		c.Set(append(c.List(), p.endpoint)...)
		t.Run(row.name, func(t *testing.T) {
			began := time.Now()
			row.do(t, c.node, p)
			must(t, testutil.Poll(soon, c.healthy))
			t.Logf("whole after %v", time.Since(began))
			for _, addr := range p.endpoint.Addresses.List() {
				testutil.Eventually(t, func() error { return pingWithin(100*time.Millisecond, pods[0].Namespace, addr) })
			}
		})
	}
}

// TestFollowManyRoutes has another program flush the routes of all endpoints, which a real manager repairs.
func TestFollowManyRoutes(t *testing.T) {
	const pods = 125 // each with two addresses
	n := newNode(t)
	table := endpointmanager.NewTable()
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir = t.TempDir()
	manager := endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: table,
		Steps: endpoint.Steps{ipamtest.New(t, "10.0.0.0/16", "fd00::/112"), n.links, n.step},
	})
	must(t, manager.Start(t.Context()))
	defer func() { must(t, manager.Stop(context.Background())) }()
	for i := range pods {
		_, err := manager.Create(t.Context(), endpointOf(t, 1+i).Spec, endpointmanagertest.OpenNamespace(t, testutil.NetNS(t).Path()))
		must(t, err)
	}
	c := &checkedNode{node: n, checker: datapath.NewChecker(n.datapath, table, manager, n.links)}
	c.follow(t, table.List()[:1])
	began := time.Now()
	for _, ep := range table.List() {
		for _, addr := range ep.Addresses.List() {
			must(t, n.Netlink(t).RouteDel(testutil.HostRoute(ep.Host.Index, addr, 0)))
		}
	}
	t.Logf("%d routes removed within %v", 2*pods, time.Since(began))
	must(t, testutil.Poll(5*time.Second, c.healthy))
	t.Logf("all are back after %v", time.Since(began))
}

// TestFollowContested has another program remove a route as soon as it is there.
func TestFollowContested(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	c.follow(t, c.List()[:1])
	route := testutil.HostRoute(pods[0].index(), pods[0].endpoint.Addresses.IPv6, 0)
	testutil.Eventually(t, func() error {
		if err := c.Netlink(t).RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
		findings := c.examine(t, "")
		if len(findings) == 1 && findings[0].Kind == "route-missing" && strings.Contains(findings[0].Detail, reconcile.Contested) {
			return nil
		}
		return fmt.Errorf("found %v", findings)
	})
	c.wantKinds(t, "route-missing") // there is one try each 30 s
}

func (c *checkedNode) wantKinds(t *testing.T, want string) {
	t.Helper()
	if got := kindsOf(c.examine(t, "")); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestFollowSparesOthers: things of other programs, orphans, and endpoints that come and go stay as they are.
func TestFollowSparesOthers(t *testing.T) {
	c, pods := newCheckedNode(t, 2)
	c.follow(t, c.List()[:1])
	leaving, stray := pods[1], netip.MustParseAddr("10.0.0.99")
	leaving.endpoint.State = endpoint.Disconnecting
	c.Set(pods[0].endpoint, leaving.endpoint)
	handle := c.Netlink(t)
	must(t, handle.LinkSetDown(testutil.LinkAt(leaving.index())))
	must(t, handle.RouteAdd(testutil.HostRoute(pods[0].index(), stray, unix.RTPROT_STATIC)))
	must(t, handle.RouteAdd(testutil.HostRoute(pods[0].index(), stray.Next(), testutil.RouteProtocol))) // an orphan waits for the doctor
	must(t, handle.NeighDel(testutil.PermanentNeighbour(pods[0].index(), pods[0].endpoint.Addresses.IPv4, nil)))
	testutil.Eventually(t, func() error { // the event after these is handled
		if kinds := kindsOf(c.examine(t, "")); kinds != "route-orphan" {
			return fmt.Errorf("found %q", kinds)
		}
		return nil
	})
	if l, err := handle.LinkByIndex(leaving.index()); err != nil || testutil.IsUp(l) {
		t.Errorf("the link of an endpoint that leaves is %+v, error %v, want it down", l, err)
	}
	for _, addr := range []netip.Addr{stray, stray.Next()} {
		if routes, err := handle.RouteListFiltered(netlink.FAMILY_V4, testutil.HostRoute(0, addr, 0), netlink.RT_FILTER_DST); err != nil || len(routes) != 1 {
			t.Errorf("routes to %s: %v, error %v", addr, routes, err)
		}
	}
}

// TestFollowMissingEntryOfLink: an event of a link that the programs do not know names no endpoint. The next event of
// an address does.
func TestFollowMissingEntryOfLink(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	c.follow(t, c.List()[:1])
	must(t, c.pinned(t, bpf.Links).Delete(uint32(pods[0].index())))
	must(t, c.Netlink(t).QdiscDel(testutil.Clsact(pods[0].index())))
	must(t, c.Netlink(t).RouteDel(testutil.HostRoute(pods[0].index(), pods[0].endpoint.Addresses.IPv6, 0)))
	must(t, testutil.Poll(soon, c.healthy)) // by the route's event
}
