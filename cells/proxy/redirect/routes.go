package redirect

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// table is the routing table that delivers every packet to this node. Nobody else may use it.
const table = 10247

// The rules come before others' rules. Packets that the table of nftables has marked are for the proxy, as are packets
// from its device. The first one is for the kernel's reverse path filter, which with src_valid_mark asks how it would
// answer with that mark.
func rules(family int) []*netlink.Rule {
	marked := func(priority int) *netlink.Rule {
		rule := netlink.NewRule()
		mask := uint32(abi.ProxyMarkMask)
		rule.Family, rule.Priority, rule.Mark, rule.Mask = family, priority, abi.ProxyDivertMark, &mask
		return rule
	}
	reverse := marked(90)
	reverse.IifName, reverse.Table = "lo", unix.RT_TABLE_MAIN
	diverted := marked(91)
	diverted.Table = table
	device := netlink.NewRule()
	device.Family, device.Priority, device.IifName, device.Table = family, 92, link.ProxyDevice, table
	return []*netlink.Rule{reverse, diverted, device}
}

// families are the families that the kernel has.
var families = []int{unix.AF_INET, unix.AF_INET6}

var familyNames = map[int]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"}

// local is the one route of the table, to this node itself.
func (r *Redirect) local(family int) (*netlink.Route, error) {
	lo, err := r.handle.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("look for lo: %w", err)
	}
	all := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		all = netip.IPv6Unspecified()
	}
	return &netlink.Route{
		LinkIndex: lo.Attrs().Index, Family: family, Table: table, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: nl.IPNet(netip.PrefixFrom(all, 0)),
	}, nil
}

// route makes the table and the rules, as far as the kernel has the family. It removes others' routes of the table, and
// rules that stand in the way of Porin's: for the same packets, with another table.
func (r *Redirect) route() error {
	for _, family := range families {
		local, err := r.local(family)
		if err != nil {
			return err
		}
		err = r.handle.RouteReplace(local)
		if family == unix.AF_INET6 && noFamily(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("make the route of table %d: %w", table, err)
		}
		routes, err := r.listRoutes(family)
		if err != nil {
			return fmt.Errorf("list the routes of table %d: %w", table, err)
		}
		for _, route := range routes {
			if isLocal(route, local) {
				continue
			}
			if err := r.handle.RouteDel(&route); err != nil && !absent(err) {
				return fmt.Errorf("remove a route of table %d: %w", table, err)
			}
		}
		have, err := nl.Dump(func() ([]netlink.Rule, error) { return r.handle.RuleList(family) })
		if err != nil {
			return fmt.Errorf("list the routing rules: %w", err)
		}
		for _, rule := range rules(family) {
			for _, other := range have {
				if !selectsSame(other, rule) || other.Table == rule.Table {
					continue
				}
				if err := r.handle.RuleDel(&other); err != nil && !absent(err) {
					return fmt.Errorf("remove a rule in the place of rule %d: %w", rule.Priority, err)
				}
			}
			if err := r.handle.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("make the rule %d: %w", rule.Priority, err)
			}
		}
	}
	return nil
}

func (r *Redirect) unroute() error {
	var errs []error
	for _, family := range families {
		for _, rule := range rules(family) {
			if err := r.handle.RuleDel(rule); err != nil && !absent(err) {
				errs = append(errs, fmt.Errorf("remove the rule %d: %w", rule.Priority, err))
			}
		}
		local, err := r.local(family)
		if err == nil {
			err = r.handle.RouteDel(local)
		}
		if err != nil && !absent(err) {
			errs = append(errs, fmt.Errorf("remove the route of table %d: %w", table, err))
		}
	}
	return errors.Join(errs...)
}

// noFamily reports whether the kernel lacks IPv6.
func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) || noFamily(err)
}
