package policymap

import (
	"fmt"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// noTable is the number of a table without rows, so that everything is denied.
const noTable = ^uint32(0)

// setEndpoint says which tables restrict an endpoint.
func (c *policyCopy) setEndpoint(e *engine.Engine, id string, number uint16) error {
	egress, ok := e.Table(id, model.Egress)
	ingress, _ := e.Table(id, model.Ingress)
	if !ok {
		return fmt.Errorf("endpoint %s has no policy", id)
	}
	p, err := c.maps.readPolicy(number)
	if err != nil {
		return err
	}
	before := p
	p.Egress[c.number], p.Ingress[c.number] = c.tableNumber(egress.ID()), c.tableNumber(ingress.ID())
	if restricts(before) || restricts(p) { // else everything was allowed, and is
		p.Revision++
	}
	if err := c.writePolicy(number, p); err != nil {
		return err
	}
	delete(c.unknown, number)
	c.endpoints[id] = endpoint{number, [2]engine.TableID{model.Egress: egress.ID(), model.Ingress: ingress.ID()}}
	return nil
}

// forget says that nothing restricts a number, which is no endpoint's any more.
func (c *policyCopy) forget(number uint16) error {
	p, err := c.maps.readPolicy(number)
	if err != nil {
		return err
	}
	return c.writePolicy(number, abi.Policy{Revision: p.Revision + 1})
}

// tableNumber is the table's in the maps.
func (c *policyCopy) tableNumber(id engine.TableID) uint32 {
	if !c.tables[id].restricts() {
		return 0
	}
	return c.numbered(uint32(id))
}

func (c *policyCopy) writePolicy(number uint16, p abi.Policy) error {
	if err := c.maps.Policies.Put(uint32(number), p); err != nil {
		return fmt.Errorf("write the policy of endpoint number %d: %w", number, err)
	}
	return nil
}

// denyUnknown denies everything to endpoints that the active copy restricts and this one does not know: they may come back with the next change.
func (c *policyCopy) denyUnknown() error {
	known := map[uint16]bool{}
	for _, ep := range c.endpoints {
		known[ep.number] = true
	}
	active := (c.number + 1) % abi.PolicyCopies
	return c.eachPolicy(func(number uint16, p abi.Policy) error {
		egress, ingress := uint32(0), uint32(0)
		if p.Egress[active]|p.Ingress[active] != 0 {
			egress, ingress = noTable, noTable
			if !known[number] {
				c.unknown[number] = true
			}
		}
		if known[number] || p.Egress[c.number] == egress && p.Ingress[c.number] == ingress {
			return nil
		}
		p.Egress[c.number], p.Ingress[c.number] = egress, ingress
		return c.writePolicy(number, p)
	})
}

// restricts reports whether a policy of any copy restricts the endpoint.
func restricts(p abi.Policy) bool { return p.Egress != [2]uint32{} || p.Ingress != [2]uint32{} }

// raiseAll has all connections of pods that are or were restricted decided anew.
func (c *policyCopy) raiseAll() error {
	return c.eachPolicy(func(number uint16, p abi.Policy) error {
		if !restricts(p) {
			return nil
		}
		p.Revision++
		return c.writePolicy(number, p)
	})
}

// eachPolicy calls f for all endpoint numbers that there may be.
func (c *policyCopy) eachPolicy(f func(number uint16, p abi.Policy) error) error {
	const chunk = 4096
	keys, values := make([]uint32, chunk), make([]abi.Policy, chunk)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := c.maps.Policies.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if err := f(uint16(keys[i]), values[i]); err != nil {
				return err
			}
		}
		if isEnd(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the policies of endpoints: %w", err)
		}
	}
}
