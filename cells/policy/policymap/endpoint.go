package policymap

import (
	"fmt"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// noTable is the number of a table without rows, so that everything is denied.
const noTable = ^uint32(0)

// setEndpoint says which tables restrict an endpoint.
func (c *policyCopy) setEndpoint(e *engine.Engine, key string, id uint16) error {
	egress, ok := e.Table(key, model.Egress)
	ingress, _ := e.Table(key, model.Ingress)
	if !ok {
		return fmt.Errorf("endpoint %s has no policy", key)
	}
	p, err := c.maps.readPolicy(id)
	if err != nil {
		return err
	}
	before := p
	p.Egress[c.number], p.Ingress[c.number] = c.tableNumber(egress.ID()), c.tableNumber(ingress.ID())
	if restricts(before) || restricts(p) { // else everything was allowed, and is
		p.Revision++
	}
	if err := c.writePolicy(id, p); err != nil {
		return err
	}
	delete(c.unknown, id)
	c.endpoints[key] = endpoint{id, [2]engine.TableID{model.Egress: egress.ID(), model.Ingress: ingress.ID()}}
	return nil
}

// forget says that nothing restricts an ID, which is no endpoint's any more.
func (c *policyCopy) forget(id uint16) error {
	p, err := c.maps.readPolicy(id)
	if err != nil {
		return err
	}
	return c.writePolicy(id, abi.Policy{Revision: p.Revision + 1})
}

// tableNumber is the table's in the maps.
func (c *policyCopy) tableNumber(id engine.TableID) uint32 {
	if !c.tables[id].restricts() {
		return 0
	}
	return c.numbered(uint32(id))
}

func (c *policyCopy) writePolicy(id uint16, p abi.Policy) error {
	if err := c.maps.Policies.Put(uint32(id), p); err != nil {
		return fmt.Errorf("write the policy of endpoint %d: %w", id, err)
	}
	return nil
}

// denyUnknown denies everything to endpoints that the active copy restricts and this one does not know: they may come back with the next change. were are those of the last
// copy of this agent; when there was none, all may be such endpoints of a former one. It returns what is or was restricted.
func (c *policyCopy) denyUnknown(were map[uint16]bool) (restricted map[uint16]abi.Policy, err error) {
	known := map[uint16]bool{}
	for _, ep := range c.endpoints {
		known[ep.id] = true
	}
	restricted = map[uint16]abi.Policy{}
	active := (c.number + 1) % abi.PolicyCopies
	return restricted, c.eachPolicy(func(id uint16, p abi.Policy) error {
		table := uint32(0)
		if !known[id] && p.Egress[active]|p.Ingress[active] != 0 && (were == nil || were[id]) {
			table = noTable
			c.unknown[id] = true
		}
		if !known[id] && (p.Egress[c.number] != table || p.Ingress[c.number] != table) {
			p.Egress[c.number], p.Ingress[c.number] = table, table
			if err := c.writePolicy(id, p); err != nil {
				return err
			}
		}
		if restricts(p) {
			restricted[id] = p
		}
		return nil
	})
}

// restricts reports whether a policy of any copy restricts the endpoint.
func restricts(p abi.Policy) bool { return p.Egress != [2]uint32{} || p.Ingress != [2]uint32{} }

// raise has all connections of these pods decided anew.
func (c *policyCopy) raise(pods map[uint16]abi.Policy) error {
	for id, p := range pods {
		p.Revision++
		if err := c.writePolicy(id, p); err != nil {
			return err
		}
	}
	return nil
}

// eachPolicy calls f for all endpoint IDs that there may be.
func (c *policyCopy) eachPolicy(f func(id uint16, p abi.Policy) error) error {
	return eachEntry(c.maps.Policies, func(id uint32, p abi.Policy) error { return f(uint16(id), p) })
}
