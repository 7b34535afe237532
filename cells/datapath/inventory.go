package datapath

import (
	"errors"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// wiring is all of it that there is, to find in it what is nobody's. What came or went while it was read may be in it
// or not, and so may what was there all the time: then it is found the next time.
type wiring struct {
	links  []netlink.Link // host ends
	routes []netlink.Route
	neighs []netlink.Neigh
}

func (n *nodeLinks) listWiring() (wiring, error) {
	if n.lists == nil {
		return wiring{}, ErrNotStarted
	}
	return listWiring(n.lists)
}

// listWiring lists the host ends, and what Porin may have made of routes and neighbour entries. A list that the kernel
// interrupted again and again is in it in part.
func listWiring(handle *netlink.Handle) (w wiring, err error) {
	var linksErr, routesErr, neighsErr error
	w.links, linksErr = link.HostEnds(handle)
	w.routes, routesErr = ourRoutes(handle)
	w.neighs, neighsErr = nl.Dump(func() ([]netlink.Neigh, error) { return handle.NeighList(0, netlink.FAMILY_ALL) })
	return w, errors.Join(partly(linksErr), partly(routesErr), partly(neighsErr))
}

// ourRoutes lists the routes of the main table that have Porin's mark.
func ourRoutes(handle *netlink.Handle) (routes []netlink.Route, err error) {
	like := &netlink.Route{Protocol: nl.Protocol}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		some, familyErr := nl.Dump(func() ([]netlink.Route, error) {
			return handle.RouteListFiltered(family, like, netlink.RT_FILTER_PROTOCOL)
		})
		routes, err = append(routes, some...), errors.Join(err, familyErr)
	}
	return routes, err
}

// partly takes a list that changed while it was read for a list.
func partly(err error) error {
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// mapEntries is all that the programs know.
type mapEntries struct {
	byLink   map[uint32]abi.Link
	byAddr   map[abi.Addr]abi.Endpoint
	counters map[uint32]abi.Traffic // of one CPU
}

func (k *kernelMaps) takeEntries() (all mapEntries, err error) {
	err = k.use(func(m *pinnedMaps) error {
		var linksErr, addrsErr, countersErr error
		all.byLink, linksErr = readAll[uint32, abi.Link](m.links)
		all.byAddr, addrsErr = readAll[abi.Addr, abi.Endpoint](m.endpoints)
		all.counters, countersErr = readAll[uint32, abi.Traffic](m.traffic)
		return errors.Join(linksErr, addrsErr, countersErr)
	})
	return all, err
}
