package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/internal/rtnl"
)

// Every filter of ours has this handle and priority, so that a new program takes the place of the old one.
const (
	filterHandle   = 1
	filterPriority = 1
)

// filters are what is attached to every link.
func filters(programs *pinnedPrograms) [2]rtnl.Filter {
	filter := func(direction rtnl.Direction, name string, p *program) rtnl.Filter {
		return rtnl.Filter{
			Direction: direction, Handle: filterHandle, Priority: filterPriority,
			Name: name, Program: p.FD(), ProgramID: p.id,
		}
	}
	return [2]rtnl.Filter{
		filter(rtnl.Ingress, bpf.FromPod, programs.fromPod), filter(rtnl.Egress, bpf.ToPod, programs.toPod),
	}
}

func (n *nodeLinks) Wire(e Entry) error {
	requests := []rtnl.Request{rtnl.AddClsact(e.Link)}
	for _, f := range n.filtersOf(e.Link) {
		requests = append(requests, rtnl.ReplaceFilter(f))
	}
	return explain(n.do(append(requests, routes(e)...)...))
}

func (n *nodeLinks) Rewire(e Entry) (replaced []string, err error) {
	if n.conn == nil {
		return nil, ErrNotStarted
	}
	sights, err := n.look(n.conn, e)
	if err != nil {
		return nil, err
	}
	flaws, err := n.flaws(n.conn, e, sights[0])
	if err != nil || len(flaws) == 0 {
		return nil, err
	}
	return describeFlaws(flaws), n.Wire(e)
}

func (n *nodeLinks) Unwire(e Entry) {
	requests := []rtnl.Request{rtnl.DelClsact(e.Link)}
	for _, addr := range e.Addresses.List() {
		requests = append(requests, rtnl.DelRoute(route(e, addr)), rtnl.DelNeigh(e.Link, addr))
	}
	if err := n.do(requests...); err != nil {
		n.log.Debug("undid what was done to a link, or was not", "ifindex", e.Link, "error", err)
	}
}

func (n *nodeLinks) filtersOf(link int) [2]rtnl.Filter {
	filters := n.filters
	filters[0].Link, filters[1].Link = link, link
	return filters
}

// routes leads the node's packets for the addresses to the link and, there, to the MAC of the container.
func routes(e Entry) (requests []rtnl.Request) {
	for _, addr := range e.Addresses.List() {
		neigh := rtnl.Neigh{Link: e.Link, Addr: addr, MAC: rtnl.MAC(e.PodMAC)}
		requests = append(requests, rtnl.ReplaceRoute(route(e, addr)), rtnl.ReplaceNeigh(neigh))
	}
	return requests
}

func route(e Entry, addr netip.Addr) rtnl.Route {
	r := rtnl.Route{Dst: hostPrefix(addr), Link: e.Link, Protocol: rtnl.Protocol}
	if addr.Is4() {
		r.Scope = unix.RT_SCOPE_LINK
	}
	return r
}

// explain says what the kernel's refusals mean: the link is gone, or the kernel has no filters.
func explain(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", ErrNoLink, err)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: clsact (CONFIG_NET_SCH_INGRESS) or BPF classifiers (CONFIG_NET_CLS_BPF): %w", ErrKernel, err)
	}
	return err
}
