package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

// family is what the container's end has of one address family.
type family struct {
	number  int // netlink.FAMILY_V4 or FAMILY_V6
	address netip.Addr
	gateway netip.Addr
	all     netip.Prefix   // destination of the default route
	routes  []netip.Prefix // more destinations, which an IPAM plugin named
}

// familiesOf lists the families that the endpoint has an address of, IPv4 first.
func familiesOf(ep endpoint.Endpoint) (list []family, err error) {
	ipam, err := ep.DecodeIPAMResult()
	if err != nil {
		return nil, err
	}
	for _, f := range []family{
		{netlink.FAMILY_V4, ep.Addresses.IPv4, v1.GatewayIPv4, netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil},
		{netlink.FAMILY_V6, ep.Addresses.IPv6, v1.GatewayIPv6, netip.PrefixFrom(netip.IPv6Unspecified(), 0), nil},
	} {
		if !f.address.IsValid() {
			continue
		}
		for _, dst := range ipam.Routes {
			if dst.Addr().Is4() == f.address.Is4() {
				f.routes = append(f.routes, dst)
			}
		}
		list = append(list, f)
	}
	return list, nil
}

// configure gives the container's end its addresses, neighbours and routes, and brings it up.
func configure(ep endpoint.Endpoint, namespace *endpoint.Namespace) error {
	families, err := familiesOf(ep)
	if err != nil {
		return err
	}
	end, container := nl.LinkAt(ep.Container.Index), namespace.Netlink()
	if err := container.LinkSetUp(end); err != nil { // first, for routes need it
		return fmt.Errorf("bring up %s in the container: %w", ep.Container.Name, err)
	}
	for _, f := range families {
		if err := setAddress(end, f, ep.Container.Name, namespace); err != nil {
			return fmt.Errorf("set address %s on %s in the container: %w", f.address, ep.Container.Name, err)
		}
		neigh := &netlink.Neigh{
			LinkIndex: ep.Container.Index, IP: f.gateway.AsSlice(), HardwareAddr: ep.Host.MAC[:], State: netlink.NUD_PERMANENT,
		}
		if err := container.NeighSet(neigh); err != nil {
			return fmt.Errorf("set neighbour %s on %s in the container: %w", f.gateway, ep.Container.Name, err)
		}
		if err := setRoutes(container, f, ep.Container.Index); err != nil {
			return fmt.Errorf("set routes by %s in the container: %w", ep.Container.Name, err)
		}
	}
	return nil
}

// setAddress gives the interface its address: usable at once, as no other host is on the link to detect a duplicate,
// and without a route to a network of its own. Where IPv6 is turned off for the interface it is turned on: the agent
// gave it an IPv6 address.
func setAddress(end netlink.Link, f family, name string, namespace *endpoint.Namespace) error {
	container := namespace.Netlink()
	addr := &netlink.Addr{IPNet: nl.HostNet(f.address), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
	err := container.AddrReplace(end, addr)
	if errors.Is(err, unix.EACCES) && f.number == netlink.FAMILY_V6 {
		if err := netns.WriteSysctl(namespace.FD(), "ipv6/conf/"+name+"/disable_ipv6", "0"); err != nil {
			return fmt.Errorf("turn IPv6 on (sysctl net.ipv6.conf.%s.disable_ipv6=0), or give this node no IPv6 range: %w", name, err)
		}
		err = container.AddrReplace(end, addr)
	}
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrKernelIPv6, err)
	}
	if err != nil || f.number == netlink.FAMILY_V4 {
		return err
	}
	// The kernel makes its own local route for an IPv6 address some time after it has answered (addrconf_dad_work, also
	// without duplicate address detection), and drops packets until then: milliseconds on a busy machine. This one is
	// beside it, less preferred, from now on.
	return container.RouteReplace(&netlink.Route{
		LinkIndex: end.Attrs().Index, Dst: nl.HostNet(f.address), Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	})
}

// secondaryMetric is the highest metric of a default route that is made without one (IPv4: 0, IPv6: 1024). A later
// interface has this and its index.
const secondaryMetric = 1024

// setRoutes leads all destinations to the gateway. The first interface of a container keeps the default route of a
// family; a later one gets a less preferred one, and rules that send its answers through it.
func setRoutes(container *netlink.Handle, f family, index int) error {
	err := container.RouteAdd(route(f, f.all, index, 0))
	if errors.Is(err, unix.EEXIST) {
		first, err := isFirst(container, f, index) // Attach has run before
		if err != nil {
			return err
		}
		if !first {
			return setSecondary(container, f, index)
		}
	} else if err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	for _, dst := range f.routes {
		err := container.RouteAdd(route(f, dst, index, 0))
		if err != nil && !errors.Is(err, unix.EEXIST) { // another interface of the container may lead there already
			return fmt.Errorf("route to %s: %w", dst, err)
		}
	}
	return nil
}

// isFirst reports whether the interface has the default route that the first interface of a container has.
func isFirst(container *netlink.Handle, f family, index int) (bool, error) {
	routes, err := nl.Dump(func() ([]netlink.Route, error) { return container.RouteList(nl.LinkAt(index), f.number) })
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return made(r, f, f.all) && r.Priority <= secondaryMetric
	}), nil
}

func route(f family, dst netip.Prefix, index, metric int) *netlink.Route {
	r := &netlink.Route{LinkIndex: index, Dst: nl.IPNet(dst), Gw: f.gateway.AsSlice(), Priority: metric}
	if f.number == netlink.FAMILY_V4 {
		r.Flags = int(netlink.FLAG_ONLINK) // no route says that the gateway is on the link
	}
	return r
}
