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

// A container with several interfaces answers through the interface of the request. Each interface but the first has a
// routing table of its own, and a rule that leads packets with its address as the source there. The kernel removes the
// routes with the interface. It leaves the rule, which then leads to an empty table and so to the next rule; the next
// later interface with an address of the family removes it, because the agent does not enter the namespace for a DEL.
const (
	// sourceTable plus the interface's index in the container is the number of its table.
	sourceTable = 80_000
	// sourceRulePriority is the rules' priority: after the local table's, before the main table's.
	sourceRulePriority = 10_000
)

func setSecondary(container *netlink.Handle, f family, index int) error {
	if err := removeStaleRules(container, f); err != nil {
		return err
	}
	// Used when the first interface has gone.
	if err := replaceRoutes(container, f, index, secondaryMetric+index, unix.RT_TABLE_MAIN); err != nil {
		return err
	}
	if err := replaceRoutes(container, f, index, 0, sourceTable+index); err != nil {
		return err
	}
	if err := container.RuleAdd(sourceRule(f, index)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("rule for packets from %s (CONFIG_IP_MULTIPLE_TABLES): %w", f.address, err)
	}
	return nil
}

func sourceRule(f family, index int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Src = f.number, nl.HostNet(f.address)
	rule.Table, rule.Priority, rule.Protocol = sourceTable+index, sourceRulePriority, nl.Protocol
	return rule
}

func replaceRoutes(container *netlink.Handle, f family, index, metric, table int) error {
	for _, dst := range append([]netip.Prefix{f.all}, f.routes...) {
		r := route(f, dst, index, metric)
		r.Table = table
		if err := container.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %s in table %d: %w", dst, table, err)
		}
	}
	return nil
}

// removeStaleRules removes the rules of interfaces that are gone, and another one for the same address.
func removeStaleRules(container *netlink.Handle, f family) error {
	rules, err := nl.Dump(func() ([]netlink.Rule, error) { return container.RuleList(f.number) })
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, rule := range rules {
		if rule.Protocol != nl.Protocol || rule.Table <= sourceTable || rule.Src == nil {
			continue
		}
		_, err := container.LinkByIndex(rule.Table - sourceTable)
		if !nl.IsNoLink(err) && !rule.Src.IP.Equal(f.address.AsSlice()) {
			continue
		}
		if err := container.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the rule of an interface that is gone: %w", err)
		}
	}
	return nil
}
