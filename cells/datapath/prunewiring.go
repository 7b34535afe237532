package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/internal/rtnl"
)

// wired says which addresses are led to which host ends.
type wired map[int][]netip.Addr

func wiredBy(entries []Entry) wired {
	w := wired{}
	for _, e := range entries {
		w[e.Link] = append(w[e.Link], e.Addresses.List()...)
	}
	return w
}

// stale says whether something of ours leads an address to a host end that is somebody's, and not with this address.
// What is on a link that is nobody's goes with the link.
func (w wired) stale(link int, addr netip.Addr) bool {
	addrs, ours := w[link]
	return ours && !slices.Contains(addrs, addr)
}

// staleRoute and staleNeigh look for our mark as well.
func (w wired) staleRoute(r rtnl.Route) bool {
	addr := r.Dst.Addr()
	if r.Dst != hostPrefix(addr) {
		addr = netip.Addr{} // nobody's: we lead no whole network anywhere
	}
	return r.Protocol == rtnl.Protocol && w.stale(r.Link, addr)
}

func (w wired) staleNeigh(n rtnl.Neigh) bool { return permanent(n) && w.stale(n.Link, n.Addr) }

func (n *nodeLinks) PruneWiring(live []Entry) (removed []string, err error) {
	if n.conn == nil {
		return nil, ErrNotStarted
	}
	w := wiredBy(live)
	routes, routesErr := n.conn.Routes(0)
	neighs, neighsErr := n.conn.Neighs(0)
	var requests []rtnl.Request
	for _, r := range routes {
		if w.staleRoute(r) {
			requests, removed = append(requests, rtnl.DelRoute(r)), append(removed, routeText(r))
		}
	}
	for _, one := range neighs {
		if w.staleNeigh(one) {
			requests, removed = append(requests, rtnl.DelNeigh(one.Link, one.Addr)), append(removed, neighText(one))
		}
	}
	return removed, errors.Join(routesErr, neighsErr, n.do(requests...))
}

func routeText(r rtnl.Route) string { return fmt.Sprintf("route to %s by link %d", r.Dst, r.Link) }
func neighText(n rtnl.Neigh) string { return fmt.Sprintf("neighbour %s on link %d", n.Addr, n.Link) }
