package datapath

import (
	"errors"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/rtnl"
)

// wiring is all of it that there is, to find in it what is nobody's. What came or went while it was read may be in it
// or not, and so may what was there all the time: then it is found the next time.
type wiring struct {
	links  []rtnl.Link // host ends
	routes []rtnl.Route
	neighs []rtnl.Neigh
}

func (n *nodeLinks) takeWiring() (w wiring, err error) {
	if n.eyes == nil {
		return w, ErrNotStarted
	}
	links, linksErr := n.eyes.Links()
	for _, l := range links {
		if link, _ := describe(&l, nil); link.Marked() {
			w.links = append(w.links, l)
		}
	}
	var routesErr, neighsErr error
	w.routes, routesErr = n.eyes.Routes(0)
	w.neighs, neighsErr = n.eyes.Neighs(0)
	return w, errors.Join(partly(linksErr), partly(routesErr), partly(neighsErr))
}

// partly takes a list that changed while it was read for a list.
func partly(err error) error {
	if errors.Is(err, rtnl.ErrInterrupted) {
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
