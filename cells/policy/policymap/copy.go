package policymap

import (
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// policyCopy is one of the copies of the policy. Each of its parts writes its maps, and knows what it has written.
type policyCopy struct {
	number    uint32     // 0 or 1
	addresses *addresses // the maps addresses and prefixes
	rowSets   *rowSets   // the map rows
	tables    *tables    // the map tables
	endpoints *endpoints // the map policies
}

func newPolicyCopy(m Maps, number uint32) *policyCopy {
	c := &policyCopy{number: number, addresses: newAddresses(m, number), rowSets: newRowSets(m, number)}
	c.tables = newTables(m, number, c.rowSets)
	c.endpoints = newEndpoints(m, number, c.tables)
	return c
}

// numbered returns the number in the maps for n, which is at least 1. The two copies never use the same number, and
// neither uses 0 or 1.
func numbered(n, copyNumber uint32) uint32 { return n*abi.PolicyCopies + copyNumber }

// write writes everything into an empty copy.
func (c *policyCopy) write(e *engine.Engine, ids map[string]uint16) error {
	for _, view := range viewsOf(e, ids) {
		if err := c.tables.add(view); err != nil {
			return err
		}
	}
	for addr, class := range e.Addresses() {
		if err := c.addresses.set(e, addr, 0, class); err != nil {
			return err
		}
	}
	if err := c.addresses.setPrefix(e, allIPv4, engine.FixedClass(model.World)); err != nil {
		return err
	}
	for cidr, class := range e.Prefixes() {
		if err := c.addresses.setPrefix(e, cidr, class); err != nil {
			return err
		}
	}
	for key, id := range ids {
		if err := c.endpoints.set(e, key, id); err != nil {
			return err
		}
	}
	return nil
}
