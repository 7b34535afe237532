package cleanup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/bandwidth"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/hostport"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/masquerade"
	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/nft"
	"porin.dev/porin/internal/nl"
)

// isGone reports whether the error says that there is no such thing any more, or that the kernel lacks its family.
func isGone(err error) bool {
	for _, errno := range []error{unix.ENODEV, unix.ESRCH, unix.ENOENT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// report prints that something was removed, or returns why it was not.
func (c *cleaner) report(kind, name string, err error) error {
	if err == nil {
		c.removed(kind, name)
		return nil
	}
	if isGone(err) {
		return nil
	}
	return fmt.Errorf("remove %s %s: %w", kind, name, err)
}

// removeLinks also removes the programs, qdiscs, addresses and neighbours of the links, and the routes by them.
func (c *cleaner) removeLinks() error {
	links, err := nl.Dump(c.handle.LinkList)
	errs := []error{err}
	for _, l := range links {
		name := l.Attrs().Name
		switch {
		case link.IsHostEnd(l), bandwidth.IsDevice(l), name == link.TunnelDevice && l.Type() == "vxlan":
			errs = append(errs, c.report("link", name, c.handle.LinkDel(l)))
		case name == link.TunnelDevice:
			c.recordLeft("link " + name + ": it is no VXLAN device, so Porin has not made it")
		}
	}
	return errors.Join(errs...)
}

// removeProxyPath removes the way into the proxy, and sets the sysctl that it has changed, if the device is there.
// Either that or the folder of the pin is.
func (c *cleaner) removeProxyPath() error {
	had, err := c.hasProxyDevice()
	if _, pinErr := os.Lstat(filepath.Join(c.cfg.BPFRoot, "proxy")); err != nil || !had && pinErr != nil {
		return err
	}
	if err := redirect.New(redirect.Config{BPFRoot: c.cfg.BPFRoot}, noPrograms{}, discard).Remove(); err != nil {
		return err
	}
	has, err := c.hasProxyDevice()
	if has {
		c.recordLeft("link " + link.ProxyDevice + ": Porin has not made it")
	} else if had && err == nil {
		c.removed("link", link.ProxyDevice)
	} else if err == nil {
		c.recordLeft("sysctl net.ipv4.tcp_early_demux: it may be 0, as the link " + link.ProxyDevice + " is gone")
	}
	return err
}

func (c *cleaner) hasProxyDevice() (bool, error) {
	_, err := c.handle.LinkByName(link.ProxyDevice)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return false, nil
	}
	return err == nil, err
}

// noPrograms is [redirect.Link] without programs: they have gone with the links.
type noPrograms struct{}

func (noPrograms) SetProxyLink(int) error                           { return nil }
func (noPrograms) ProxyLink() (int, error)                          { return 0, nil }
func (noPrograms) UseMaps(f func(map[string]*ebpf.Map) error) error { return f(nil) }

var families = []int{unix.AF_INET, unix.AF_INET6}

// protocols mark routes and rules of Porin.
var protocols = []int{nl.Protocol, node.RouteProtocol}

func (c *cleaner) removeRoutes() error {
	var errs []error
	for _, family := range families {
		for _, protocol := range protocols {
			like := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: netlink.RouteProtocol(protocol)}
			routes, err := nl.Dump(func() ([]netlink.Route, error) {
				return c.handle.RouteListFiltered(family, like, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
			})
			if !isGone(err) {
				errs = append(errs, err)
			}
			for _, route := range routes {
				name := fmt.Sprintf("%s of table %d", route.Dst, route.Table)
				errs = append(errs, c.report("route", name, c.handle.RouteDel(&route)))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *cleaner) removeRules() error {
	var errs []error
	for _, family := range families {
		rules, err := nl.Dump(func() ([]netlink.Rule, error) { return c.handle.RuleList(family) })
		if !isGone(err) {
			errs = append(errs, err)
		}
		for _, rule := range rules {
			if rule.Protocol == nl.Protocol || rule.Protocol == node.RouteProtocol {
				errs = append(errs, c.report("rule", fmt.Sprintf("%d to table %d", rule.Priority, rule.Table), c.handle.RuleDel(&rule)))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *cleaner) removeTables() error {
	deleted, err := nft.DeleteTables(hostfilter.TableName, hostport.TableName, masquerade.TableName, tunnel.TableName)
	for _, name := range deleted {
		c.removed("table inet", name)
	}
	return err
}

// detachUplinks comes after removeLinks, so that no pod's packet passes a device without its policy.
func (c *cleaner) detachUplinks() error {
	detached, err := datapath.DetachUplinks()
	for _, d := range detached {
		c.removed("program", d.Program+" of "+d.Device)
		if d.Clsact {
			c.recordLeft("qdisc clsact of " + d.Device + ": others may have made it, or use it")
		}
	}
	return err
}
