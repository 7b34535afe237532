package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/task"
)

// RouteProtocol marks the routes to other nodes' pods (rtm_protocol). Like [nl.Protocol] it has no name in the kernel.
const RouteProtocol = nl.Protocol + 1

// netlinkKernel is the kernel of the network namespace in which it was opened.
type netlinkKernel struct {
	handle    *netlink.Handle
	namespace *os.File
}

// openKernel opens the network namespace of the calling thread.
func openKernel() (*netlinkKernel, error) {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a route-netlink socket: %w", err), namespace.Close())
	}
	return &netlinkKernel{handle, namespace}, nil
}

func (k *netlinkKernel) close() error {
	k.handle.Close()
	return k.namespace.Close()
}

var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

// Addresses implements [Kernel]: the source address of the default route, else the first one of its interface. Without
// a default route it is the first one of the first interface that is up and no pod's.
func (k *netlinkKernel) Addresses() (addrs []netip.Addr, err error) {
	for _, family := range families {
		addr, err := k.address(family)
		if err != nil {
			return nil, err
		}
		if addr.IsValid() {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// Local implements [Kernel].
func (k *netlinkKernel) Local(addrs []netip.Addr) (local []netip.Addr, err error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	all, err := nl.Dump(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of the node: %w", err)
	}
	for _, addr := range addrs {
		if slices.ContainsFunc(all, func(a netlink.Addr) bool { return nl.Addr(a.IP) == addr }) {
			local = append(local, addr)
		}
	}
	return local, nil
}

func (k *netlinkKernel) address(family int) (none netip.Addr, err error) {
	all, err := nl.Dump(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, family) })
	if err != nil {
		return none, fmt.Errorf("list the addresses of the node: %w", err)
	}
	of := map[int][]netip.Addr{} // by interface
	for _, a := range all {
		addr := nl.Addr(a.IP)
		if addr.IsGlobalUnicast() && a.Scope == int(netlink.SCOPE_UNIVERSE) && a.Flags&(unix.IFA_F_TEMPORARY|unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE) == 0 {
			of[a.LinkIndex] = append(of[a.LinkIndex], addr)
		}
	}
	routes, err := k.defaultRoutes(family)
	if err != nil {
		return none, err
	}
	for _, r := range routes {
		if src := nl.Addr(r.Src); src.IsValid() {
			return src, nil
		}
		for _, index := range linksOf(r) {
			if addrs := of[index]; len(addrs) > 0 {
				return addrs[0], nil
			}
		}
	}
	links, err := nl.Dump(k.handle.LinkList)
	if err != nil {
		return none, fmt.Errorf("list the interfaces of the node: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&unix.IFF_UP != 0 && a.Flags&unix.IFF_LOOPBACK == 0 && !link.IsHostEndName(a.Name) && a.Name != link.TunnelDevice && len(of[a.Index]) > 0 {
			return of[a.Index][0], nil
		}
	}
	return none, nil
}

// defaultRoutes are in the order in which the kernel takes them.
func (k *netlinkKernel) defaultRoutes(family int) ([]netlink.Route, error) {
	routes, err := nl.Dump(func() ([]netlink.Route, error) {
		return k.handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN, Dst: nil}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
	})
	if err != nil {
		return nil, fmt.Errorf("list the default routes of the node: %w", err)
	}
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	return routes, nil
}

// linksOf are the interfaces of a route: several for several next hops.
func linksOf(r netlink.Route) (indices []int) {
	if len(r.MultiPath) == 0 {
		return []int{r.LinkIndex}
	}
	for _, hop := range r.MultiPath {
		indices = append(indices, hop.LinkIndex)
	}
	return indices
}

// mtuOf returns the MTU of the interface that has the address, or of the default route's when it is no link to other
// nodes: the smallest one if that has several.
func (k *netlinkKernel) mtuOf(addr netip.Addr) (int, error) {
	all, err := nl.Dump(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, nl.FamilyOf(addr)) })
	if err != nil {
		return 0, fmt.Errorf("list the addresses of the node: %w", err)
	}
	index := 0
	for _, a := range all {
		if nl.Addr(a.IP) == addr {
			index = a.LinkIndex
		}
	}
	if mtu, err := k.mtuOfLink(index); mtu > 0 || err != nil {
		return mtu, err
	}
	routes, err := k.defaultRoutes(nl.FamilyOf(addr))
	if err != nil {
		return 0, err
	}
	for _, r := range routes {
		smallest := 0
		for _, index := range linksOf(r) {
			mtu, err := k.mtuOfLink(index)
			if err != nil {
				return 0, err
			}
			if mtu > 0 && (smallest == 0 || mtu < smallest) {
				smallest = mtu
			}
		}
		if smallest > 0 {
			return smallest, nil
		}
	}
	return 0, nil
}

// mtuOfLink is 0 for no interface, and for lo.
func (k *netlinkKernel) mtuOfLink(index int) (int, error) {
	if index == 0 {
		return 0, nil
	}
	l, err := k.handle.LinkByIndex(index)
	if nl.IsNoLink(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for interface %d: %w", index, err)
	}
	if l.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
		return 0, nil
	}
	return l.Attrs().MTU, nil
}

// hop is where packets to another node go.
type hop struct {
	link int
	via  netip.Addr
	mtu  int // 0: the interface's; below 0: left out by the kernel's lookup for programs
}

// onLink returns the interface on which the kernel reaches the address directly; 0 when it does not.
func (k *netlinkKernel) onLink(addr netip.Addr) (int, error) {
	routes, err := k.handle.RouteGet(addr.AsSlice())
	if nl.IgnoreAbsent(err) != nil {
		return 0, fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	for _, r := range routes {
		if len(r.MultiPath) == 0 && r.Gw == nil && r.Via == nil && r.Type == unix.RTN_UNICAST {
			return r.LinkIndex, nil
		}
	}
	return 0, nil
}

// routes returns the routes to other nodes' pods.
func (k *netlinkKernel) routes() (map[netip.Prefix]hop, error) {
	all := map[netip.Prefix]hop{}
	like := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: RouteProtocol}
	for _, family := range families {
		routes, err := nl.Dump(func() ([]netlink.Route, error) {
			return k.handle.RouteListFiltered(family, like, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return nil, fmt.Errorf("list the routes to other nodes: %w", err)
		}
		for _, r := range routes {
			mtu := r.MTU
			if !r.MTULock {
				mtu = -mtu
			}
			all[nl.Prefix(r.Dst)] = hop{r.LinkIndex, nl.Addr(r.Gw), mtu}
		}
	}
	return all, nil
}

// addRoute fails with EEXIST when another program has such a route.
func (k *netlinkKernel) addRoute(dst netip.Prefix, to hop) error {
	return k.handle.RouteAdd(routeTo(dst, to))
}

// replaceRoute is for a route that is there.
func (k *netlinkKernel) replaceRoute(dst netip.Prefix, to hop) error {
	return k.handle.RouteReplace(routeTo(dst, to))
}

func (k *netlinkKernel) removeRoute(dst netip.Prefix, to hop) error {
	err := k.handle.RouteDel(routeTo(dst, to))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// routeTo has the gateway on the interface, whatever routes there are to it. Only an MTU that is locked counts for
// packets past the stack, and for IPv6 packets that the stack forwards.
func routeTo(dst netip.Prefix, to hop) *netlink.Route {
	return &netlink.Route{
		LinkIndex: to.link, Dst: nl.IPNet(dst), Gw: to.via.AsSlice(), Protocol: RouteProtocol, Flags: int(netlink.FLAG_ONLINK), Table: unix.RT_TABLE_MAIN,
		MTU: to.mtu, MTULock: to.mtu != 0,
	}
}

// Watch implements [Kernel].
func (k *netlinkKernel) Watch(ctx context.Context) (<-chan struct{}, error) {
	notifications, err := nl.WatchIn(ctx, k.namespace, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, err
	}
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		for m := range notifications {
			if isOfNode(m) {
				task.Wake(changes)
			}
		}
	}()
	return changes, nil
}

// isOfNode leaves out what comes and goes with each pod, and what the router does itself.
func isOfNode(m syscall.NetlinkMessage) bool {
	header := unix.NlMsghdr(m.Header)
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, err := netlink.LinkDeserialize(&header, m.Data)
		return err != nil || !link.IsHostEndName(l.Attrs().Name)
	case unix.RTM_NEWROUTE:
		return len(m.Data) < unix.SizeofRtMsg || m.Data[5] != nl.Protocol && m.Data[5] != RouteProtocol
	case unix.RTM_DELROUTE:
		return len(m.Data) < unix.SizeofRtMsg || m.Data[5] != nl.Protocol
	case unix.RTM_NEWADDR, unix.RTM_DELADDR: // struct ifaddrmsg: each host end has addresses of scope link
		return len(m.Data) < unix.SizeofIfAddrmsg || m.Data[3] != uint8(netlink.SCOPE_LINK) || binary.NativeEndian.Uint32(m.Data[4:]) == 0
	}
	return false
}
