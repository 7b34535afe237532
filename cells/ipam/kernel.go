package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// Kernel tells which addresses the node's network names that are none of Porin's endpoints' doing: the datapath looks
// after those.
type Kernel interface {
	// Uses are host routes that lead elsewhere than to an endpoint, and the node's own addresses.
	Uses() ([]Use, error)
}

// Use is one such thing.
type Use struct {
	Addr  netip.Addr
	Own   bool   // an interface of the node has it
	Which string // "route to 10.1.0.7/32 by link 2"
}

// routeKernel asks the kernel of the network namespace that the caller's thread is in.
type routeKernel struct{}

// NewKernel returns the one there is.
func NewKernel() Kernel { return routeKernel{} }

// Uses implements [Kernel].
func (routeKernel) Uses() ([]Use, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	ends, endsErr := link.HostEnds(handle)
	routes4, routes4Err := unicastRoutes(handle, netlink.FAMILY_V4)
	routes6, routes6Err := unicastRoutes(handle, netlink.FAMILY_V6)
	addrs, addrsErr := nl.Dump(func() ([]netlink.Addr, error) { return handle.AddrList(nil, netlink.FAMILY_ALL) })
	// A list that changed each time that it was read may lack something: the next look sees that. Without the host ends,
	// what belongs to endpoints would seem to be others'.
	if endsErr != nil {
		return nil, fmt.Errorf("list what the node's network names: %w", endsErr)
	}
	for _, err := range []error{routes4Err, routes6Err, addrsErr} {
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list what the node's network names: %w", err)
		}
	}
	ours := map[int]bool{}
	for _, end := range ends {
		ours[end.Attrs().Index] = true
	}
	return slices.Concat(routeUses(routes4, ours), routeUses(routes6, ours), addrUses(addrs)), nil
}

// unicastRoutes lists the routes of the main table.
func unicastRoutes(handle *netlink.Handle, family int) ([]netlink.Route, error) {
	like := &netlink.Route{Type: unix.RTN_UNICAST}
	return nl.Dump(func() ([]netlink.Route, error) { return handle.RouteListFiltered(family, like, netlink.RT_FILTER_TYPE) })
}

// routeUses leaves out the routes of networks: an address in one may be free.
func routeUses(routes []netlink.Route, ours map[int]bool) (uses []Use) {
	for _, r := range routes {
		dst := nl.Prefix(r.Dst)
		if !dst.IsSingleIP() || r.Protocol == nl.Protocol && ours[r.LinkIndex] {
			continue
		}
		uses = append(uses, Use{dst.Addr(), false, fmt.Sprintf("route to %s by link %d", dst, r.LinkIndex)})
	}
	return uses
}

func addrUses(addrs []netlink.Addr) (uses []Use) {
	for _, a := range addrs {
		uses = append(uses, Use{nl.Addr(a.IP), true, fmt.Sprintf("address %s of link %d", nl.Prefix(a.IPNet), a.LinkIndex)})
	}
	return uses
}
