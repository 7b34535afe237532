package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// flaws compares what Wire makes with what there is.
func (n *nodeLinks) flaws(conn *rtnl.Conn, e Entry, s sight) ([]flaw, error) {
	flaws := filterFlaws(n.filtersOf(e.Link), s.filters)
	routes, err := routeFlaws(conn, e, s)
	return slices.Concat(flaws, routes, neighFlaws(e, s)), err
}

func filterFlaws(want, found [2]rtnl.Filter) (flaws []flaw) {
	for i, f := range want {
		what := "program " + f.Name
		switch found[i].ProgramID {
		case f.ProgramID:
		case 0:
			flaws = append(flaws, flaw{programMissing, what, missing})
		default:
			flaws = append(flaws, flaw{programDiffers, what, fmt.Sprintf("%d instead of %d", found[i].ProgramID, f.ProgramID)})
		}
	}
	return flaws
}

// routeFlaws asks the table itself only when the route that the node takes is another: there may be one that goes
// before ours, or a rule that leads past the table, and neither is a fault of ours.
func routeFlaws(conn *rtnl.Conn, e Entry, s sight) (flaws []flaw, err error) {
	for i, addr := range e.Addresses.List() {
		if leads(s.routes[i], e.Link, addr) {
			continue
		}
		all, err := conn.Routes(e.Link)
		// A link that has gone meanwhile has no routes. That one seems to be missing does no harm: it is written again.
		if err := answered(partly(err)); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(r rtnl.Route) bool { return leads(r, e.Link, addr) }) {
			continue
		}
		flaws = append(flaws, routeFlaw(e, addr, s.routes[i]))
	}
	return flaws, nil
}

// leads says whether it is the route of Wire.
func leads(r rtnl.Route, link int, addr netip.Addr) bool {
	return r.Dst == hostPrefix(addr) && r.Link == link && r.Protocol == rtnl.Protocol && !r.Gateway.IsValid() &&
		r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST
}

func routeFlaw(e Entry, addr netip.Addr, found rtnl.Route) flaw {
	f := flaw{routeMissing, "route to " + addr.String(), missing}
	if found.Dst == hostPrefix(addr) {
		f.kind = routeDiffers
		f.detail = fmt.Sprintf("by link %d with protocol %d instead of link %d with protocol %d", found.Link, found.Protocol, e.Link, rtnl.Protocol)
	}
	return f
}

func neighFlaws(e Entry, s sight) (flaws []flaw) {
	for i, addr := range e.Addresses.List() {
		f := flaw{neighMissing, "neighbour " + addr.String(), missing}
		switch found := s.neighs[i]; {
		case !found.Addr.IsValid():
		case found.MAC != rtnl.MAC(e.PodMAC):
			f.detail = fmt.Sprintf("%s instead of %s", found.MAC, e.PodMAC)
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
func permanent(n rtnl.Neigh) bool { return n.State&unix.NUD_PERMANENT != 0 }
