package datapath

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// observed is what the kernel has of one endpoint, map entries apart. What is not there is zero.
type observed struct {
	link     netlink.Link     // nil when there is none of that index
	programs [2]int           // their IDs, in the order of nodeLinks.filters
	routes   [2]netlink.Route // in the order of Addresses.List
	neighs   [2]netlink.Neigh
}

// observe asks for each thing by its name: a list of all could lack something when it changes while it is read, and for one
// endpoint it would be long.
func (n *nodeLinks) observe(handle *netlink.Handle, e Entry) (o observed, err error) {
	if o.link, err = linkOrErrNoLink(handle.LinkByIndex(e.Link)); errors.Is(err, ErrNoLink) {
		return o, nil // the rest went with it
	}
	if err != nil {
		return o, err
	}
	for i, filter := range n.filters {
		if o.programs[i], err = programAt(handle, e.Link, filter.Parent); err != nil {
			return o, err
		}
	}
	for i, addr := range e.Addresses.List() {
		routes, err := handle.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		if !isRefusal(err) && err != nil {
			return o, err
		}
		if len(routes) > 0 {
			o.routes[i] = routes[0]
		}
		neigh, err := n.neighbours.Get(e.Link, addr)
		if !isRefusal(err) && err != nil {
			return o, err
		}
		if neigh != nil {
			o.neighs[i] = *neigh
		}
	}
	return o, nil
}

// programAt is the ID of the program in the place of ours on that side of the link; 0 for none.
func programAt(handle *netlink.Handle, link int, side uint32) (id int, err error) {
	filters, err := nl.Dump(func() ([]netlink.Filter, error) { return handle.FilterList(nl.LinkAt(link), side) })
	for _, filter := range filters {
		bpf, ok := filter.(*netlink.BpfFilter)
		if ok && bpf.Handle == filterHandle && bpf.Priority == filterPriority {
			return bpf.Id, nil
		}
	}
	if isRefusal(err) {
		return 0, nil
	}
	return 0, err
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
