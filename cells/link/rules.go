package link

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

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
		if !isNotFound(err) && !rule.Src.IP.Equal(f.address.AsSlice()) {
			continue
		}
		if err := container.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the rule of an interface that is gone: %w", err)
		}
	}
	return nil
}
