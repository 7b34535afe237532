package ipam

import (
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam/allocator"
)

// foreign are addresses that the kernel uses, although they are free; and the node's own ones, which
// are no more than a note where they are not given out.
func (c *Checker) foreign(uses []Use) (findings []doctor.Finding) {
	which := map[netip.Addr][]string{}
	avoided := c.avoided()
	for _, use := range uses {
		if use.Own && avoided[use.Addr] {
			findings = append(findings, doctor.Finding{Kind: addressOfNode, Subject: use.Addr.String(), Detail: use.Which})
			continue
		}
		if managed, owner := c.Allocator.Lookup(use.Addr); managed && (owner == "" || use.Own && owner != TunnelOwner) {
			which[use.Addr] = append(which[use.Addr], use.Which)
		}
	}
	for addr, texts := range which {
		_, owner := c.Allocator.Lookup(addr)
		slices.Sort(texts)
		findings = append(findings, doctor.Finding{
			Kind: addressForeign, Subject: addr.String(),
			Detail: strings.Join(texts, ", ") + "; for the allocator it is " + whose(owner),
		})
	}
	return findings
}

// avoided are the addresses of the node that are not given out.
func (c *Checker) avoided() map[netip.Addr]bool {
	avoided := map[netip.Addr]bool{}
	usage := c.Allocator.Usage()
	for _, pool := range usage.Pools {
		for _, b := range pool.Blocks {
			for _, addr := range b.NodeAddresses {
				avoided[addr] = true
			}
		}
	}
	for _, allocation := range usage.Allocations {
		for _, addr := range allocation.Addresses.List() {
			delete(avoided, addr)
		}
	}
	return avoided
}

func whose(owner allocator.Handle) string {
	if owner == "" {
		return "nobody's"
	}
	return "that of " + owner.String()
}
