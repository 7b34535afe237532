package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// flaws compares what Wire makes with what there is.
func (n *nodeLinks) flaws(handle *netlink.Handle, e Entry, o observed) ([]flaw, error) {
	routes, err := routeFlaws(handle, e, o)
	return slices.Concat(n.filterFlaws(o), routes, neighFlaws(e, o)), err
}

func (n *nodeLinks) filterFlaws(o observed) (flaws []flaw) {
	for i, filter := range n.filters {
		what := "program " + filter.Name
		switch found := o.programs[i]; found {
		case filter.Id:
		case 0:
			flaws = append(flaws, flaw{programMissing, what, missing})
		default:
			flaws = append(flaws, flaw{programDiffers, what, fmt.Sprintf("%d instead of %d", found, filter.Id)})
		}
	}
	return flaws
}

// routeFlaws asks the table itself only when the route that the node takes is another: there may be one that goes
// before ours, or a rule that leads past the table, and neither is a fault of ours.
func routeFlaws(handle *netlink.Handle, e Entry, o observed) (flaws []flaw, err error) {
	for i, addr := range e.Addresses.List() {
		if isOurRoute(o.routes[i], e.Link, addr) {
			continue
		}
		routes, err := routesBy(handle, e.Link, addr)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return isOurRoute(r, e.Link, addr) }) {
			continue
		}
		flaws = append(flaws, routeFlaw(e, addr, o.routes[i]))
	}
	return flaws, nil
}

// routesBy lists the routes of the main table by the link, of the address's family. A link that has gone has none.
func routesBy(handle *netlink.Handle, link int, addr netip.Addr) ([]netlink.Route, error) {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := nl.Dump(func() ([]netlink.Route, error) { return handle.RouteList(nl.LinkAt(link), family) })
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return routes, err
}

// isOurRoute reports whether it is the route of Wire.
func isOurRoute(r netlink.Route, link int, addr netip.Addr) bool {
	return nl.Prefix(r.Dst) == hostPrefix(addr) && r.LinkIndex == link && r.Protocol == nl.Protocol && r.Gw == nil &&
		r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST
}

func routeFlaw(e Entry, addr netip.Addr, found netlink.Route) flaw {
	f := flaw{routeMissing, "route to " + addr.String(), missing}
	if nl.Prefix(found.Dst) == hostPrefix(addr) {
		f.kind = routeDiffers
		f.detail = fmt.Sprintf("by link %d with protocol %d instead of link %d with protocol %d", found.LinkIndex, int(found.Protocol), e.Link, nl.Protocol)
	}
	return f
}

func neighFlaws(e Entry, o observed) (flaws []flaw) {
	for i, addr := range e.Addresses.List() {
		f := flaw{neighMissing, "neighbour " + addr.String(), missing}
		switch found := o.neighs[i]; {
		case found.IP == nil:
		case found.HardwareAddr.String() != e.PodMAC.String():
			f.detail = fmt.Sprintf("%s instead of %s", found.HardwareAddr, e.PodMAC)
		case !permanent(found):
			f.detail = "not permanent"
		default:
			continue
		}
		flaws = append(flaws, f)
	}
	return flaws
}

// permanent is the mark of the neighbour entries that we make.
func permanent(n netlink.Neigh) bool { return n.State&netlink.NUD_PERMANENT != 0 }
