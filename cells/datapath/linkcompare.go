package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// Compare tells of nothing else when the link is not the endpoint's: it is not for Update to change that.
func (n *nodeLinks) Compare(e Entry) ([]Difference, error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	a, err := n.readOf(e)
	if err != nil {
		return nil, err
	}
	differences := compareLink(e, a.link)
	if len(differences) > 0 && slices.Contains([]string{linkMissing, linkDiffers}, differences[0].Kind) {
		return differences, nil
	}
	return slices.Concat(differences, comparePrograms(n.filters, a), compareRoutes(e, a), compareNeighbours(e, a)), nil
}

func compareLink(e Entry, l netlink.Link) (differences []Difference) {
	subject := "link " + e.LinkName
	switch {
	case l == nil:
		return []Difference{{linkMissing, subject, missing}}
	case l.Attrs().Name != e.LinkName || l.Type() != "veth":
		return []Difference{{linkDiffers, subject, fmt.Sprintf("%s %s instead of veth %s", l.Type(), l.Attrs().Name, e.LinkName)}}
	}
	if mac := l.Attrs().HardwareAddr.String(); mac != e.HostMAC.String() {
		differences = append(differences, Difference{linkMACDiffers, subject, fmt.Sprintf("MAC %s instead of %s", mac, e.HostMAC)})
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		differences = append(differences, Difference{linkDown, subject, "down"})
	}
	return differences
}

func comparePrograms(filters [2]netlink.BpfFilter, a actualLinks) (differences []Difference) {
	for i, filter := range filters {
		subject := "program " + filter.Name
		switch found := a.programs[i]; found {
		case filter.Id:
		case 0:
			differences = append(differences, Difference{programMissing, subject, missing})
		default:
			differences = append(differences, Difference{programDiffers, subject, fmt.Sprintf("%d instead of %d", found, filter.Id)})
		}
	}
	return differences
}

func compareRoutes(e Entry, a actualLinks) (differences []Difference) {
	for _, addr := range e.Addresses.List() {
		if slices.ContainsFunc(a.routes, func(r netlink.Route) bool { return isOurRoute(r, e.Link, addr) }) {
			continue
		}
		d := Difference{routeMissing, "route to " + addr.String(), missing}
		if i := slices.IndexFunc(a.routes, func(r netlink.Route) bool { return hostAddr(r) == addr }); i >= 0 {
			d.Kind = routeDiffers
			d.Detail = fmt.Sprintf("by link %d with protocol %d instead of link %d with protocol %d",
				a.routes[i].LinkIndex, int(a.routes[i].Protocol), e.Link, nl.Protocol)
		}
		differences = append(differences, d)
	}
	return differences
}

// isOurRoute reports whether it is the route of Update.
func isOurRoute(r netlink.Route, link int, addr netip.Addr) bool {
	return hostAddr(r) == addr && r.LinkIndex == link && r.Protocol == nl.Protocol && r.Gw == nil &&
		r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST
}

func compareNeighbours(e Entry, a actualLinks) (differences []Difference) {
	for _, addr := range e.Addresses.List() {
		d := Difference{neighMissing, "neighbour " + addr.String(), missing}
		if i := slices.IndexFunc(a.neighbours, func(n netlink.Neigh) bool { return nl.Addr(n.IP) == addr }); i >= 0 {
			switch found := a.neighbours[i]; {
			case found.HardwareAddr.String() != e.PodMAC.String():
				d.Detail = fmt.Sprintf("%s instead of %s", found.HardwareAddr, e.PodMAC)
			case !isPermanent(found):
				d.Detail = "not permanent"
			default:
				continue
			}
		}
		differences = append(differences, d)
	}
	return differences
}

// isPermanent reports whether the neighbour entry has the mark of our entries.
func isPermanent(n netlink.Neigh) bool { return n.State&netlink.NUD_PERMANENT != 0 }

// Stale finds the routes and neighbour entries, on links of endpoints, for addresses that these do not have.
func (n *nodeLinks) Stale(want Want) (stale []Stale, err error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	a, err := listLinks(n.reader)
	d := want()
	const detail = "the endpoint on the link does not have this address"
	for _, r := range a.routes {
		isStale := func(d Desired) bool { return r.Protocol == nl.Protocol && d.LacksAddress(r.LinkIndex, hostAddr(r)) }
		if isStale(d) {
			subject := fmt.Sprintf("route to %s by link %d", nl.Prefix(r.Dst), r.LinkIndex)
			stale = append(stale, Stale{Difference{routeOrphan, subject, detail}, removeIf(isStale, func() error { return n.handle.RouteDel(&r) })})
		}
	}
	for _, neighbour := range a.neighbours {
		isStale := func(d Desired) bool {
			return isPermanent(neighbour) && d.LacksAddress(neighbour.LinkIndex, nl.Addr(neighbour.IP))
		}
		if isStale(d) {
			subject := fmt.Sprintf("neighbour %s on link %d", neighbour.IP, neighbour.LinkIndex)
			stale = append(stale, Stale{Difference{neighOrphan, subject, detail}, removeIf(isStale, func() error { return n.handle.NeighDel(&neighbour) })})
		}
	}
	return stale, err
}

// removeIf is a removal of what is still stale and may be gone.
func removeIf(isStale func(Desired) bool, remove func() error) func(Want) error {
	return func(want Want) error {
		if !isStale(want()) {
			return nil
		}
		err := remove()
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		return err
	}
}
