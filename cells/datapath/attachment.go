package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

// Every filter of ours has this handle and priority, so that a new program takes the place of the old one, between two packets.
const (
	filterHandle   = 1
	filterPriority = 1
)

// filters are what is attached to every link.
func filters(programs *loader.Programs) [2]netlink.BpfFilter {
	filter := func(side uint32, name string, p *loader.Program) netlink.BpfFilter {
		return netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{Parent: side, Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: name, DirectAction: true, Id: int(p.ID),
		}
	}
	return [2]netlink.BpfFilter{
		filter(netlink.HANDLE_MIN_INGRESS, bpf.FromPod, programs.FromPod),
		filter(netlink.HANDLE_MIN_EGRESS, bpf.ToPod, programs.ToPod),
	}
}

// clsact is the qdisc that filters are attached to. It holds no packets.
func clsact(link int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// route leads the node's packets for the address to the link.
func route(e Entry, addr netip.Addr) *netlink.Route {
	r := &netlink.Route{LinkIndex: e.Link, Dst: nl.HostNet(addr), Protocol: nl.Protocol}
	if addr.Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	return r
}

// neighbour leads them, there, to the MAC of the container: nothing is asked on the link.
func neighbour(e Entry, addr netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: e.Link, IP: addr.AsSlice(), HardwareAddr: e.PodMAC[:], State: netlink.NUD_PERMANENT}
}

// Update attaches the filters before it brings the link up: no packet passes unchecked.
func (n *nodeLinks) Update(e Entry) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	if err := n.router.ignoreAdvertisements(e.LinkName); err != nil {
		return err
	}
	if err := attachFilters(n.handle, n.filters, e.Link); err != nil {
		return err
	}
	if l, err := n.handle.LinkByIndex(e.Link); err == nil && l.Attrs().HardwareAddr.String() != e.HostMAC.String() {
		if err := n.handle.LinkSetHardwareAddr(l, e.HostMAC[:]); err != nil {
			return explain("set the MAC of link", e.Link, err)
		}
	}
	if err := n.handle.LinkSetUp(nl.LinkAt(e.Link)); err != nil { // routes need it
		return explain("bring up link", e.Link, err)
	}
	for _, addr := range e.Addresses.List() {
		err := n.handle.RouteReplace(route(e, addr))
		if errors.Is(err, unix.EACCES) && addr.Is6() { // IPv6 is off on the link, as it is on the node
			err = n.router.turnOnIPv6(e.LinkName)
			if err == nil {
				err = n.handle.RouteReplace(route(e, addr))
			}
		}
		if err != nil {
			return explain(fmt.Sprintf("replace route to %s by link", addr), e.Link, err)
		}
		if err := n.handle.NeighSet(neighbour(e, addr)); err != nil {
			return explain(fmt.Sprintf("set neighbour %s on link", addr), e.Link, err)
		}
	}
	return nil
}

func attachFilters(handle *netlink.Handle, filters [2]netlink.BpfFilter, link int) error {
	if err := handle.QdiscAdd(clsact(link)); err != nil && !errors.Is(err, unix.EEXIST) {
		return explainFilter("add clsact to link", link, err)
	}
	for _, filter := range filters {
		filter.LinkIndex = link
		if err := handle.FilterReplace(&filter); err != nil {
			return explainFilter("attach "+filter.Name+" to link", link, err)
		}
	}
	return nil
}

// explainFilter is explain, and says what a kernel without filters lacks.
func explainFilter(doing string, index int, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: clsact (CONFIG_NET_SCH_INGRESS) or BPF classifiers (CONFIG_NET_CLS_BPF): %w", loader.ErrKernel, err)
	}
	return explain(doing, index, err)
}

// Delete needs the addresses of e, too.
func (n *nodeLinks) Delete(e Entry) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	errs := []error{n.handle.LinkSetDown(nl.LinkAt(e.Link)), n.handle.QdiscDel(clsact(e.Link))}
	for _, addr := range e.Addresses.List() {
		errs = append(errs, n.handle.RouteDel(route(e, addr)), n.handle.NeighDel(neighbour(e, addr)))
	}
	for i, err := range errs {
		if isRefusal(err) { // it was not made
			errs[i] = nil
		}
	}
	return explain("take what was attached off link", e.Link, errors.Join(errs...))
}

// probeAttach attaches the programs to the lo of a temporary network namespace, so that a node learns at
// start, and not from its first container, that its kernel lacks clsact or BPF classifiers.
func probeAttach(programs *loader.Programs) error {
	const loopback = 1 // the index of lo in every network namespace
	err := netns.InNew(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		if err := attachFilters(handle, filters(programs), loopback); err != nil {
			return err
		}
		here := func(f func() error) error { return f() }
		return errors.Join(
			newUplinkHook(uplinkEgress, programs.ToUplink, handle, here, loader.HasTCX()).attach(loopback),
			newUplinkHook(uplinkIngress, programs.FromUplink, handle, here, loader.HasTCX()).attach(loopback),
		)
	})
	if err != nil {
		return fmt.Errorf("attach BPF programs to a link for a trial: %w", err)
	}
	return nil
}
