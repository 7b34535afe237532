package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
)

// Every filter of ours has this handle and priority, so that a new program takes the place of the old one.
const (
	filterHandle   = 1
	filterPriority = 1
)

// nodeLinks is [Links] in the network namespace of the thread that started it.
type nodeLinks struct {
	log     *slog.Logger
	conn    *rtnl.Conn // nil unless started
	deleter *deleter
	filters [2]rtnl.Filter // less their Link
}

// start opens the sockets. The programs must stay open until stop.
func (n *nodeLinks) start(programs *pinnedPrograms) error {
	conn, err := rtnl.Dial()
	if err != nil {
		return err
	}
	deleter, err := openDeleter(conn, n.log)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	n.conn, n.deleter, n.filters = conn, deleter, filters(programs)
	return nil
}

// stop waits for the deletions in progress. Nothing may be called any more.
func (n *nodeLinks) stop() error {
	err := errors.Join(n.deleter.close(), n.conn.Close())
	n.conn = nil
	return err
}

func (n *nodeLinks) do(requests ...rtnl.Request) error {
	if n.conn == nil {
		return ErrNotStarted
	}
	return n.conn.Do(requests...)
}

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

func (n *nodeLinks) Link(index int) (Link, error) {
	var link rtnl.Link
	return describe(&link, n.do(rtnl.LinkByIndex(index, &link)))
}

func (n *nodeLinks) Remove(ctx context.Context, index int) error {
	if n.conn == nil {
		return ErrNotStarted
	}
	return n.deleter.remove(ctx, index)
}

func (n *nodeLinks) LinkByName(name string) (Link, error) {
	var link rtnl.Link
	return describe(&link, n.do(rtnl.LinkByName(name, &link)))
}

func describe(link *rtnl.Link, err error) (Link, error) {
	if errors.Is(err, unix.ENODEV) {
		return Link{}, ErrNoLink
	}
	if err != nil {
		return Link{}, err
	}
	return Link{
		Index: link.Index, Name: link.Name, Kind: link.Kind, MAC: endpointmanager.MAC(link.MAC), Up: link.Up(),
	}, nil
}

func (n *nodeLinks) Links() ([]Link, error) {
	if n.conn == nil {
		return nil, ErrNotStarted
	}
	return hostEnds(n.conn)
}

// hostEnds lists the links that bear our mark.
func hostEnds(conn *rtnl.Conn) ([]Link, error) {
	all, err := conn.Links()
	if err != nil {
		return nil, err
	}
	var ours []Link
	for _, l := range all {
		if link, _ := describe(&l, nil); link.Marked() {
			ours = append(ours, link)
		}
	}
	return ours, nil
}

func (n *nodeLinks) Wire(e Entry) error {
	requests := []rtnl.Request{rtnl.AddClsact(e.Link)}
	for _, f := range n.filtersOf(e.Link) {
		requests = append(requests, rtnl.ReplaceFilter(f))
	}
	return explain(n.do(append(requests, routes(e)...)...))
}

func (n *nodeLinks) Rewire(e Entry) error {
	if n.filtered(e.Link) {
		return n.do(routes(e)...)
	}
	return n.Wire(e)
}

// filtered says whether the link has our programs and no others in our place.
func (n *nodeLinks) filtered(link int) bool {
	var found [2]rtnl.Filter
	want := n.filtersOf(link)
	if n.do(rtnl.GetFilter(want[0], &found[0]), rtnl.GetFilter(want[1], &found[1])) != nil {
		return false
	}
	return found[0].ProgramID == want[0].ProgramID && found[1].ProgramID == want[1].ProgramID
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

func (n *nodeLinks) PruneRoutes(live []Entry) (removed int, err error) {
	if n.conn == nil {
		return 0, ErrNotStarted
	}
	keep, want := map[int]bool{}, map[rtnl.Route]bool{}
	for _, e := range live {
		keep[e.Link] = true
		for _, addr := range e.Addresses.List() {
			want[rtnl.Route{Dst: hostPrefix(addr), Link: e.Link}] = true
		}
	}
	all, err := n.conn.Routes(0)
	if err != nil {
		return 0, err
	}
	var requests []rtnl.Request
	for _, r := range all {
		if r.Protocol == rtnl.Protocol && keep[r.Link] && !want[rtnl.Route{Dst: r.Dst, Link: r.Link}] {
			requests = append(requests, rtnl.DelRoute(r))
		}
	}
	return len(requests), n.do(requests...)
}

// explain names what a kernel lacks that refuses to attach a filter.
func explain(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: clsact (CONFIG_NET_SCH_INGRESS) or BPF classifiers (CONFIG_NET_CLS_BPF): %w", ErrKernel, err)
	}
	return err
}
