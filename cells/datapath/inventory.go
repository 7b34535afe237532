package datapath

import (
	"errors"
	"fmt"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/rtnl"
)

// inventory is all that there is, to find in it what is nobody's. What came or went while it was taken may be in it or
// not.
type inventory struct {
	links     []rtnl.Link // host ends
	routes    []rtnl.Route
	neighs    []rtnl.Neigh
	byLink    map[uint32]abi.Link
	byAddr    map[abi.Addr]abi.Endpoint
	counters  map[uint32]abi.Traffic // of one CPU
	digests   []string               // of pinned programs, less those of this agent
	maps      []string               // pinned, by their paths below the root, less those of this agent
	programs  []uint32               // loaded on our maps, and neither pinned nor attached where they belong
	routerOff []string               // sysctls
}

// takeInventory goes on after what could not be read.
func (d *Datapath) takeInventory(all *inventory, judged []judgement) error {
	attached := map[uint32]bool{}
	for _, j := range judged {
		for _, f := range j.sight.filters {
			attached[f.ProgramID] = true
		}
	}
	return errors.Join(all.takeWiring(&d.links), all.takeEntries(&d.maps), d.takePins(all, attached), d.takeSysctls(all))
}

func (all *inventory) takeWiring(n *nodeLinks) error {
	links, linksErr := n.eyes.Links()
	for _, l := range links {
		if link, _ := describe(&l, nil); link.Marked() {
			all.links = append(all.links, l)
		}
	}
	var routesErr, neighsErr error
	all.routes, routesErr = n.eyes.Routes(0)
	all.neighs, neighsErr = n.eyes.Neighs(0)
	return errors.Join(whole(linksErr), whole(routesErr), whole(neighsErr))
}

// whole takes a list that changed for a list: who is not in it is no orphan this time.
func whole(err error) error {
	if errors.Is(err, rtnl.ErrInterrupted) {
		return nil
	}
	return err
}

func (all *inventory) takeEntries(k *kernelMaps) error {
	return k.use(func(m *pinnedMaps) error {
		var linksErr, addrsErr, countersErr error
		all.byLink, linksErr = readAll[uint32, abi.Link](m.links)
		all.byAddr, addrsErr = readAll[abi.Addr, abi.Endpoint](m.endpoints)
		all.counters, countersErr = readAll[uint32, abi.Traffic](m.traffic)
		return errors.Join(linksErr, addrsErr, countersErr)
	})
}

// takeSysctls reads them in the node's namespace.
func (d *Datapath) takeSysctls(all *inventory) error {
	return d.inNamespace(func() (err error) {
		all.routerOff, err = forwardingIsOff()
		return err
	})
}

func (d *Datapath) takePins(all *inventory, attached map[uint32]bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == nil {
		return ErrNotStarted
	}
	for _, p := range d.loaded.programs.byName() {
		attached[(*p).id] = true
	}
	var digestsErr, mapsErr, programsErr error
	all.digests, digestsErr = d.loader.strayDigests(d.loaded.digest)
	all.maps, mapsErr = d.loader.strayMaps()
	all.programs, programsErr = strayPrograms(d.loaded.maps, attached)
	if err := errors.Join(digestsErr, mapsErr, programsErr); err != nil {
		return fmt.Errorf("look for programs and maps of nobody: %w", err)
	}
	return nil
}

// ourNames are those of the programs.
var ourNames = map[string]bool{bpf.FromPod: true, bpf.ToPod: true}
