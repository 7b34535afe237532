package datapath

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// actualLinks is what the kernel has on links: read for one endpoint, or listed for all.
type actualLinks struct {
	routes     []netlink.Route
	neighbours []netlink.Neigh
	// Of one endpoint alone:
	link     netlink.Link // nil when there is none of that index
	programs [2]int       // their IDs, in the order of nodeLinks.filters; 0 for none
}

// readOf asks for each thing of an endpoint by its name. Without the link the rest went with it.
func (n *nodeLinks) readOf(e Entry) (a actualLinks, err error) {
	if a.link, err = linkOrErrNoLink(n.reader.LinkByIndex(e.Link)); errors.Is(err, ErrNoLink) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	for i, filter := range n.filters {
		if a.programs[i], err = programAt(n.reader, e.Link, filter); err != nil {
			return a, err
		}
	}
	for _, addr := range e.Addresses.List() {
		routes, err := readRoutes(n.reader, e.Link, addr)
		if err != nil {
			return a, err
		}
		a.routes = append(a.routes, routes...)
		neighbour, err := n.neighbours.Get(e.Link, addr)
		if err != nil && !isRefusal(err) {
			return a, err
		}
		if neighbour != nil {
			a.neighbours = append(a.neighbours, *neighbour)
		}
	}
	return a, nil
}

// programAt is the ID of the program in the place of our filter on the link; 0 for none.
func programAt(handle *netlink.Handle, link int, ours netlink.BpfFilter) (id int, err error) {
	filters, err := nl.Dump(func() ([]netlink.Filter, error) { return handle.FilterList(nl.LinkAt(link), ours.Parent) })
	for _, filter := range filters {
		bpf, ok := filter.(*netlink.BpfFilter)
		if ok && bpf.Handle == ours.Handle && bpf.Priority == ours.Priority {
			return bpf.Id, nil
		}
	}
	if isRefusal(err) {
		return 0, nil
	}
	return 0, err
}

// readRoutes returns the route that the node takes to the address. When that is not ours, it adds the routes of the main table: there
// may be a route that goes before ours, or a rule that leads past the table, and neither means that ours is missing.
func readRoutes(handle *netlink.Handle, link int, addr netip.Addr) ([]netlink.Route, error) {
	taken, err := handle.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil && !isRefusal(err) {
		return nil, err
	}
	if slices.ContainsFunc(taken, func(r netlink.Route) bool { return isOurRoute(r, link, addr) }) {
		return taken, nil
	}
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := nl.Dump(func() ([]netlink.Route, error) { return handle.RouteList(nl.LinkAt(link), family) })
	if errors.Is(err, unix.ENODEV) { // the link has gone, and its routes with it
		return taken, nil
	}
	return append(taken, routes...), err
}

// isRefusal reports whether the kernel says of a single thing that it is not there. For a route, EACCES and EINVAL mean that one
// leads nowhere; for filters, EINVAL means that the link has no qdisc for them.
func isRefusal(err error) bool {
	for _, errno := range []error{
		unix.ENOENT, unix.ENODEV, unix.ESRCH, unix.EINVAL, unix.EACCES, unix.ENETUNREACH, unix.EHOSTUNREACH,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// listLinks lists the routes that have Porin's mark, and all neighbour entries. What came or went while it was read may be in it
// or not. A list that the kernel interrupted again and again is in it in part.
func listLinks(handle *netlink.Handle) (a actualLinks, err error) {
	var routesErr, neighboursErr error
	a.routes, routesErr = listRoutes(handle)
	a.neighbours, neighboursErr = nl.Dump(func() ([]netlink.Neigh, error) { return handle.NeighList(0, netlink.FAMILY_ALL) })
	return a, errors.Join(ignoreInterrupted(routesErr), ignoreInterrupted(neighboursErr))
}

// hostEnds lists the interfaces that bear Porin's mark, as far as the kernel gave the whole list.
func (n *nodeLinks) hostEnds() ([]netlink.Link, error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	ends, err := link.HostEnds(n.reader)
	return ends, ignoreInterrupted(err)
}

// listRoutes lists the routes of the main table that have Porin's mark.
func listRoutes(handle *netlink.Handle) (routes []netlink.Route, err error) {
	like := &netlink.Route{Protocol: nl.Protocol}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		some, familyErr := nl.Dump(func() ([]netlink.Route, error) {
			return handle.RouteListFiltered(family, like, netlink.RT_FILTER_PROTOCOL)
		})
		routes, err = append(routes, some...), errors.Join(err, familyErr)
	}
	return routes, err
}

// ignoreInterrupted takes a list that changed while it was read for a list.
func ignoreInterrupted(err error) error {
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// Addresses reads them in the routes that have Porin's mark.
func (n *nodeLinks) Addresses() (map[int][]netip.Addr, error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	routes, err := listRoutes(n.reader)
	if err != nil {
		return nil, err
	}
	led := map[int][]netip.Addr{}
	for _, r := range routes {
		if addr := hostAddr(r); addr.IsValid() {
			led[r.LinkIndex] = append(led[r.LinkIndex], addr)
		}
	}
	return led, nil
}

// hostAddr is the one address that the route leads to, or the zero one of a route to a network.
func hostAddr(r netlink.Route) netip.Addr {
	dst := nl.Prefix(r.Dst)
	if addr := dst.Addr(); addr.IsValid() && dst == hostPrefix(addr) {
		return addr
	}
	return netip.Addr{}
}
