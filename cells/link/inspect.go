package link

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
)

// Inspector compares the container's end of a link with what [Step.Attach] made. It changes nothing.
type Inspector interface {
	// Inspect returns the first difference, for people; "" when there is none.
	Inspect(ctx context.Context, ep endpoint.Endpoint, namespace *endpoint.Namespace) (difference string, err error)
}

// Inspect implements [Inspector].
func (s *Step) Inspect(_ context.Context, ep endpoint.Endpoint, namespace *endpoint.Namespace) (difference string, err error) {
	if namespace == nil {
		return "", ErrNoNamespace
	}
	container := namespace.Netlink()
	end, err := container.LinkByName(ep.Container.Name)
	if nl.IsNoLink(err) {
		return fmt.Sprintf("interface %s is missing in the container", ep.Container.Name), nil
	}
	if err != nil {
		return "", fmt.Errorf("get %s in the container: %w", ep.Container.Name, err)
	}
	if difference := inspectLink(end, ep); difference != "" {
		return difference, nil
	}
	families, err := familiesOf(ep)
	if err != nil {
		return "", err
	}
	for _, f := range families {
		difference, err := inspectFamily(container, end, f, ep)
		if err != nil || difference != "" {
			return difference, err
		}
	}
	return "", nil
}

func inspectLink(end netlink.Link, ep endpoint.Endpoint) string {
	attrs, name := end.Attrs(), ep.Container.Name
	mac, _ := v1.ParseMAC(attrs.HardwareAddr.String())
	switch {
	case end.Type() != "veth" || attrs.ParentIndex != ep.Host.Index:
		return fmt.Sprintf("interface %s in the container is not the other end of %s on the node", name, ep.Host.Name)
	case attrs.RawFlags&unix.IFF_UP == 0:
		return fmt.Sprintf("interface %s is down in the container", name)
	case mac != ep.Container.MAC:
		return fmt.Sprintf("interface %s has the MAC %s, and the agent gave it %s", name, mac, ep.Container.MAC)
	}
	return ""
}

func inspectFamily(container *netlink.Handle, end netlink.Link, f family, ep endpoint.Endpoint) (difference string, err error) {
	addrs, err := nl.Dump(func() ([]netlink.Addr, error) { return container.AddrList(end, f.number) })
	if err != nil {
		return "", fmt.Errorf("list addresses of %s in the container: %w", ep.Container.Name, err)
	}
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return nl.Prefix(a.IPNet) == netip.PrefixFrom(f.address, f.address.BitLen())
	}) {
		return fmt.Sprintf("address %s is missing on interface %s", f.address, ep.Container.Name), nil
	}
	if difference, err := inspectRoutes(container, end, f); err != nil || difference != "" {
		return difference, err
	}
	neighs, err := nl.Dump(func() ([]netlink.Neigh, error) { return container.NeighList(ep.Container.Index, f.number) })
	if err != nil {
		return "", fmt.Errorf("list neighbours on %s in the container: %w", ep.Container.Name, err)
	}
	permanent := func(n netlink.Neigh) bool {
		mac, _ := v1.ParseMAC(n.HardwareAddr.String())
		return nl.Addr(n.IP) == f.gateway && mac == ep.Host.MAC && n.State&netlink.NUD_PERMANENT != 0
	}
	if !slices.ContainsFunc(neighs, permanent) {
		return fmt.Sprintf("permanent neighbour %s with MAC %s is missing on interface %s", f.gateway, ep.Host.MAC, ep.Container.Name), nil
	}
	return "", nil
}

func inspectRoutes(container *netlink.Handle, end netlink.Link, f family) (difference string, err error) {
	name, index := end.Attrs().Name, end.Attrs().Index
	routes, err := nl.Dump(func() ([]netlink.Route, error) {
		return container.RouteListFiltered(f.number, &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return "", fmt.Errorf("list routes by %s in the container: %w", name, err)
	}
	secondary := false
	for _, dst := range append([]netip.Prefix{f.all}, f.routes...) {
		at := slices.IndexFunc(routes, func(r netlink.Route) bool { return made(r, f, dst) && r.Table == unix.RT_TABLE_MAIN })
		if at < 0 {
			return fmt.Sprintf("route to %s by %s is missing on interface %s", dst, f.gateway, name), nil
		}
		secondary = secondary || dst == f.all && routes[at].Priority > secondaryMetric
		own := func(r netlink.Route) bool { return made(r, f, dst) && r.Table == sourceTable+index }
		if secondary && !slices.ContainsFunc(routes, own) {
			return fmt.Sprintf("route to %s by %s is missing in table %d of interface %s", dst, f.gateway, sourceTable+index, name), nil
		}
	}
	if !secondary {
		return "", nil
	}
	rules, err := nl.Dump(func() ([]netlink.Rule, error) { return container.RuleList(f.number) })
	if err != nil {
		return "", fmt.Errorf("list rules in the container: %w", err)
	}
	if !slices.ContainsFunc(rules, func(r netlink.Rule) bool {
		return r.Table == sourceTable+index && nl.Prefix(r.Src) == netip.PrefixFrom(f.address, f.address.BitLen())
	}) {
		return fmt.Sprintf("rule for packets from %s is missing: they do not leave by interface %s", f.address, name), nil
	}
	return "", nil
}

// made reports whether Attach makes this route to the destination.
func made(r netlink.Route, f family, dst netip.Prefix) bool {
	return nl.Prefix(r.Dst) == dst && nl.Addr(r.Gw) == f.gateway
}
