package testutil

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

// Netlink returns the namespace's route-netlink handle, which any goroutine may use. [Namespace.Close] closes it. It
// must not be used afterwards: a closed handle of the library works in the namespace of the calling thread.
func (n *Namespace) Netlink(t testing.TB) *netlink.Handle {
	t.Helper()
	handle, err := n.netlink()
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func (n *Namespace) netlink() (handle *netlink.Handle, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handle == nil {
		_, n.handle, err = netns.Open(n.FD())
	}
	return n.handle, err
}

// dump lists something of the namespace, and the whole of it.
func dump[T any](n *Namespace, list func(*netlink.Handle) ([]T, error)) ([]T, error) {
	handle, err := n.netlink()
	if err != nil {
		return nil, err
	}
	return nl.Dump(func() ([]T, error) { return list(handle) })
}

// Links lists the interfaces.
func (n *Namespace) Links() ([]netlink.Link, error) { return dump(n, (*netlink.Handle).LinkList) }

// Addrs lists the addresses of the interface, of both families; 0 for all interfaces.
func (n *Namespace) Addrs(link int) ([]netlink.Addr, error) { return dump(n, addrsOf(link)) }

// Routes lists the unicast routes of the main table by the interface, of both families; 0 for those by all interfaces.
func (n *Namespace) Routes(link int) ([]netlink.Route, error) { return dump(n, routesOf(link)) }

// PermanentNeighbours lists the permanent neighbour entries of the interface, of both families; 0 for all
// interfaces.
func (n *Namespace) PermanentNeighbours(link int) ([]netlink.Neigh, error) {
	return dump(n, permanentNeighboursOf(link))
}

// Filters lists the filters on one side of the interface (netlink.HANDLE_MIN_INGRESS or HANDLE_MIN_EGRESS), of every
// kind. An interface without the qdisc clsact has none.
func (n *Namespace) Filters(link int, side uint32) ([]netlink.Filter, error) {
	filters, err := dump(n, func(h *netlink.Handle) ([]netlink.Filter, error) { return h.FilterList(LinkAt(link), side) })
	if errors.Is(err, unix.EINVAL) { // the kernel's word for a side that is not there
		return nil, nil
	}
	return filters, err
}

// Qdiscs lists the interface's qdiscs.
func (n *Namespace) Qdiscs(link int) ([]netlink.Qdisc, error) {
	return dump(n, func(h *netlink.Handle) ([]netlink.Qdisc, error) { return h.QdiscList(LinkAt(link)) })
}

func addrsOf(link int) func(*netlink.Handle) ([]netlink.Addr, error) {
	return func(h *netlink.Handle) ([]netlink.Addr, error) {
		if link == 0 {
			return h.AddrList(nil, netlink.FAMILY_ALL)
		}
		return h.AddrList(LinkAt(link), netlink.FAMILY_ALL)
	}
}

func routesOf(link int) func(*netlink.Handle) ([]netlink.Route, error) {
	like, by := netlink.Route{Type: unix.RTN_UNICAST, LinkIndex: link}, netlink.RT_FILTER_TYPE
	if link != 0 {
		by |= netlink.RT_FILTER_OIF
	}
	return func(h *netlink.Handle) ([]netlink.Route, error) {
		ipv4, err := h.RouteListFiltered(netlink.FAMILY_V4, &like, by)
		if err != nil {
			return nil, err
		}
		ipv6, err := h.RouteListFiltered(netlink.FAMILY_V6, &like, by)
		return append(ipv4, ipv6...), err
	}
}

func permanentNeighboursOf(link int) func(*netlink.Handle) ([]netlink.Neigh, error) {
	return func(h *netlink.Handle) (permanent []netlink.Neigh, err error) {
		all, err := h.NeighList(link, netlink.FAMILY_ALL)
		for _, entry := range all {
			if entry.State&netlink.NUD_PERMANENT != 0 {
				permanent = append(permanent, entry)
			}
		}
		return permanent, err
	}
}
