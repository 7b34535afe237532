package ipam

import (
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/cells/doctor"
)

// foreign are what the kernel uses of the addresses that are given out, and nobody has; and what the node has itself.
func (c *Checker) foreign(uses []Use) (findings []doctor.Finding) {
	which := map[netip.Addr][]string{}
	for _, use := range uses {
		if ours, owner := c.Books.Standing(use.Addr); ours && (owner == "" || use.Own) {
			which[use.Addr] = append(which[use.Addr], use.Which)
		}
	}
	for addr, texts := range which {
		_, owner := c.Books.Standing(addr)
		slices.Sort(texts)
		findings = append(findings, doctor.Finding{
			Kind: addressForeign, Subject: addr.String(),
			Detail: strings.Join(texts, ", ") + "; for the allocator it is " + whose(owner),
		})
	}
	return findings
}

func whose(owner Handle) string {
	if owner == "" {
		return "nobody's"
	}
	return "that of " + owner.String()
}
