package engine

import (
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// DomainChange says which addresses the names that a rule matches have now, or have no longer.
type DomainChange struct {
	Rule        model.DNSRule
	Add, Remove []netip.Addr
}

func isDomain(p model.Peer) bool { return p.Domain != model.DNSRule{} }

func domainKey(r model.DNSRule) string { return "domain " + r.Name + " " + r.Pattern }

// changeDomain changes the addresses of a domain's selector. Each is a range of one address, which may be in blocks, too.
func (tx *transaction) changeDomain(sel *selector, add, remove []netip.Addr) {
	e := tx.e
	for _, addr := range remove {
		addr = addr.Unmap()
		if _, ok := sel.addresses[addr]; !ok {
			continue
		}
		delete(sel.addresses, addr)
		cidr := single(addr)
		p, _ := e.prefixes.Get(cidr)
		p.begins = slices.DeleteFunc(p.begins, func(s *selector) bool { return s == sel })
		tx.releasePrefix(cidr, p)
		tx.blocks = append(tx.blocks, cidr)
	}
	for _, addr := range add {
		addr = addr.Unmap()
		if _, ok := sel.addresses[addr]; ok {
			continue
		}
		if sel.addresses == nil {
			sel.addresses = map[netip.Addr]struct{}{}
		}
		sel.addresses[addr] = struct{}{}
		p := e.acquirePrefix(single(addr))
		p.begins = append(p.begins, sel)
		tx.blocks = append(tx.blocks, single(addr))
	}
}
