package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/nl"
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
func (w wired) staleRoute(r netlink.Route) bool {
	dst := nl.Prefix(r.Dst)
	addr := dst.Addr()
	if dst != hostPrefix(addr) {
		addr = netip.Addr{} // nobody's: we lead no whole network anywhere
	}
	return r.Protocol == nl.Protocol && w.stale(r.LinkIndex, addr)
}

func (w wired) staleNeigh(n netlink.Neigh) bool {
	return permanent(n) && w.stale(n.LinkIndex, nl.Addr(n.IP))
}

func (n *nodeLinks) PruneWiring(live []Entry) (removed []string, err error) {
	if n.node == nil {
		return nil, ErrNotStarted
	}
	keep := wiredBy(live)
	found, err := listWiring(n.node)
	errs := []error{err}
	for _, r := range found.routes {
		if keep.staleRoute(r) {
			removed, errs = append(removed, routeText(r)), append(errs, notThere(n.node.RouteDel(&r)))
		}
	}
	for _, one := range found.neighs {
		if keep.staleNeigh(one) {
			removed, errs = append(removed, neighText(one)), append(errs, notThere(n.node.NeighDel(&one)))
		}
	}
	return removed, errors.Join(errs...)
}

func routeText(r netlink.Route) string {
	return fmt.Sprintf("route to %s by link %d", nl.Prefix(r.Dst), r.LinkIndex)
}

func neighText(n netlink.Neigh) string {
	return fmt.Sprintf("neighbour %s on link %d", n.IP, n.LinkIndex)
}
