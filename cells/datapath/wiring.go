package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/internal/nl"
)

// Every filter of ours has this handle and priority, so that a new program takes the place of the old one, between two packets.
const (
	filterHandle   = 1
	filterPriority = 1
)

// filters are what is attached to every link.
func filters(programs *pinnedPrograms) [2]netlink.BpfFilter {
	filter := func(side uint32, name string, p *program) netlink.BpfFilter {
		return netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{Parent: side, Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: name, DirectAction: true, Id: int(p.id),
		}
	}
	return [2]netlink.BpfFilter{
		filter(netlink.HANDLE_MIN_INGRESS, bpf.FromPod, programs.fromPod),
		filter(netlink.HANDLE_MIN_EGRESS, bpf.ToPod, programs.toPod),
	}
}

// clsact is the qdisc that filters are attached to. It holds no packets.
func clsact(link int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

func (n *nodeLinks) Wire(e Entry) error {
	if n.node == nil {
		return ErrNotStarted
	}
	if err := errors.Join(n.router.admit(e), n.router.ignoreAdvertisements(e.LinkName)); err != nil {
		return err
	}
	if err := n.attachFilters(e.Link); err != nil {
		return err
	}
	if err := n.BringUp(e.Link); err != nil { // routes need it
		return err
	}
	for _, addr := range e.Addresses.List() {
		if err := n.node.RouteReplace(route(e, addr)); err != nil {
			return explain(fmt.Sprintf("replace route to %s by link", addr), e.Link, err)
		}
		if err := n.node.NeighSet(neighbour(e, addr)); err != nil {
			return explain(fmt.Sprintf("set neighbour %s on link", addr), e.Link, err)
		}
	}
	return nil
}

func (n *nodeLinks) attachFilters(link int) error {
	if err := n.node.QdiscAdd(clsact(link)); err != nil && !errors.Is(err, unix.EEXIST) {
		return explainFilter("add clsact to link", link, err)
	}
	for _, filter := range n.filters {
		filter.LinkIndex = link
		if err := n.node.FilterReplace(&filter); err != nil {
			return explainFilter("attach "+filter.Name+" to link", link, err)
		}
	}
	return nil
}

// explainFilter is explain, and says what a kernel without filters lacks.
func explainFilter(doing string, index int, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: clsact (CONFIG_NET_SCH_INGRESS) or BPF classifiers (CONFIG_NET_CLS_BPF): %w", ErrKernel, err)
	}
	return explain(doing, index, err)
}

func (n *nodeLinks) Rewire(e Entry) (replaced []string, err error) {
	if n.node == nil {
		return nil, ErrNotStarted
	}
	if err := n.router.admit(e); err != nil {
		return nil, err
	}
	observed, err := n.observe(n.node, e)
	var flaws []flaw
	if err == nil {
		flaws, err = n.flaws(n.node, e, observed)
	}
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, n.Wire(e) // whether it was right remains unknown
	}
	if err != nil || len(flaws) == 0 {
		return nil, err
	}
	return describeFlaws(flaws), n.Wire(e)
}

func (n *nodeLinks) Unwire(e Entry) {
	if n.node == nil {
		return
	}
	errs := []error{n.BringDown(e.Link), n.node.QdiscDel(clsact(e.Link))}
	for _, addr := range e.Addresses.List() {
		errs = append(errs, n.node.RouteDel(route(e, addr)), n.node.NeighDel(neighbour(e, addr)))
	}
	if err := errors.Join(errs...); err != nil {
		n.log.Debug("undid what was done to a link, or was not", "ifindex", e.Link, "error", err)
	}
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
