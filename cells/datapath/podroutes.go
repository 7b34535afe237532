package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// placed names a route or a neighbour entry: the link that it is on, and its destination.
type placed struct {
	link int
	dst  netip.Prefix
}

// placesOf is what an endpoint's routes and neighbour entries are named by.
func placesOf[V any](e Entry, want V) (things []reconcile.Thing[placed, V]) {
	for _, addr := range e.Addresses.List() {
		things = append(things, reconcile.Thing[placed, V]{Key: placed{e.Link, hostPrefix(addr)}, Want: want})
	}
	return things
}

const orphanAddress = "the endpoint on the link does not have this address"

// podRoutes are the routes to the endpoints' addresses.
type podRoutes struct {
	handle, reader *netlink.Handle
	router         *router
}

// podRoute is where a route leads.
type podRoute struct {
	link, protocol int
	direct         bool // without a gateway, in the main table
}

func newPodRoutes(handle, reader *netlink.Handle, router *router) *reconcile.Table[Entry, placed, podRoute] {
	return &reconcile.Table[Entry, placed, podRoute]{
		Operations:   &podRoutes{handle, reader, router},
		Kinds:        reconcile.Kinds{Missing: routeMissing, Differs: routeDiffers, Orphan: routeOrphan},
		OrphanDetail: orphanAddress,
	}
}

func (*podRoutes) Desired(e Entry) []reconcile.Thing[placed, podRoute] {
	return placesOf(e, podRoute{e.Link, nl.Protocol, true})
}

func (*podRoutes) Has(e Entry, key placed) bool { return key.link == e.Link }

func (p *podRoutes) List() (keys []placed, err error) {
	routes, err := listRoutes(p.reader)
	for _, r := range routes {
		keys = append(keys, placed{r.LinkIndex, nl.Prefix(r.Dst)})
	}
	return keys, nl.IgnoreInterrupted(err)
}

// Get returns the route that the node takes to the address. When that is not ours, it looks for ours in the main table:
// there may be a route that goes before it, or a rule that leads past the table, and neither means that ours is
// missing.
func (p *podRoutes) Get(key placed) (have podRoute, found bool, err error) {
	addr := key.dst.Addr()
	isOurs := func(r netlink.Route) bool {
		return nl.Prefix(r.Dst) == key.dst && podRouteOf(r) == podRoute{key.link, nl.Protocol, true}
	}
	routes, err := p.reader.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if nl.IgnoreAbsent(err) != nil {
		return have, false, err
	}
	if !slices.ContainsFunc(routes, isOurs) {
		listed, err := nl.Dump(func() ([]netlink.Route, error) { return p.reader.RouteList(nl.LinkAt(key.link), nl.FamilyOf(addr)) })
		if err != nil && !errors.Is(err, unix.ENODEV) { // the link has gone, and its routes with it
			return have, false, err
		}
		routes = append(routes, listed...)
	}
	for _, r := range routes { // ours, or else the first to the address
		if isOurs(r) || !found && nl.Prefix(r.Dst) == key.dst {
			have, found = podRouteOf(r), true
		}
	}
	return have, found, nil
}

func podRouteOf(r netlink.Route) podRoute {
	return podRoute{r.LinkIndex, int(r.Protocol), r.Gw == nil && r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST}
}

// Apply turns IPv6 on where it is off on the link, as it is on the node.
func (p *podRoutes) Apply(key placed, _ podRoute) error {
	err := p.handle.RouteReplace(routeTo(key))
	if errors.Is(err, unix.EACCES) && key.dst.Addr().Is6() {
		var l netlink.Link
		if l, err = p.handle.LinkByIndex(key.link); err == nil {
			err = p.router.turnOnIPv6(l.Attrs().Name)
		}
		if err == nil {
			err = p.handle.RouteReplace(routeTo(key))
		}
	}
	return explain(fmt.Sprintf("replace route to %s by link", key.dst.Addr()), key.link, err)
}

// routeTo leads the node's packets for the address to the link.
func routeTo(key placed) *netlink.Route {
	r := &netlink.Route{LinkIndex: key.link, Dst: nl.IPNet(key.dst), Protocol: nl.Protocol}
	if key.dst.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	return r
}

func (p *podRoutes) Remove(key placed) error {
	r := routeTo(key)
	r.Scope = netlink.SCOPE_NOWHERE // of any scope
	return explain(fmt.Sprintf("remove route to %s by link", key.dst), key.link, nl.IgnoreAbsent(p.handle.RouteDel(r)))
}

func (*podRoutes) Compare(want, have podRoute) string {
	if want == have {
		return ""
	}
	return fmt.Sprintf("by link %d with protocol %d instead of link %d with protocol %d", have.link, have.protocol, want.link, want.protocol)
}

func (*podRoutes) Name(key placed) string { return "route to " + key.dst.Addr().String() }

func (*podRoutes) NameOrphan(key placed) string {
	return fmt.Sprintf("route to %s by link %d", key.dst, key.link)
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
