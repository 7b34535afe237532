package policymap

import (
	"fmt"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// noTable is the number of a table without rows, so that everything is denied.
const noTable = ^uint32(0)

// endpoints is a copy's part of the map policies.
type endpoints struct {
	maps       Maps
	copyNumber uint32
	tables     *tables
	byKey      map[string]endpoint
	unknown    map[uint16]bool // IDs of no known endpoint, which are denied everything
}

type endpoint struct {
	id     uint16
	tables [2]engine.TableID // by direction
}

func newEndpoints(m Maps, copyNumber uint32, t *tables) *endpoints {
	return &endpoints{maps: m, copyNumber: copyNumber, tables: t, byKey: map[string]endpoint{}, unknown: map[uint16]bool{}}
}

// set says which tables restrict an endpoint.
func (x *endpoints) set(e *engine.Engine, key string, id uint16) error {
	egress, ok := e.Table(key, model.Egress)
	ingress, _ := e.Table(key, model.Ingress)
	if !ok {
		return fmt.Errorf("endpoint %s has no policy", key)
	}
	p, err := x.maps.readPolicy(id)
	if err != nil {
		return err
	}
	before := p
	p.Egress[x.copyNumber], p.Ingress[x.copyNumber] = x.tables.number(egress.ID()), x.tables.number(ingress.ID())
	if restricts(before) || restricts(p) { // else everything was allowed, and is
		p.Revision++
	}
	if err := x.maps.writePolicy(id, p); err != nil {
		return err
	}
	delete(x.unknown, id)
	x.byKey[key] = endpoint{id, [2]engine.TableID{model.Egress: egress.ID(), model.Ingress: ingress.ID()}}
	return nil
}

// denyUnknown denies everything to endpoints that the active copy restricts and this one does not know: they may come back with the next change. were are those of the last
// copy of this agent; when there was none, all may be such endpoints of a former one. It returns what is or was restricted.
func (x *endpoints) denyUnknown(were map[uint16]bool) (restricted map[uint16]abi.Policy, err error) {
	known := map[uint16]bool{}
	for _, ep := range x.byKey {
		known[ep.id] = true
	}
	restricted = map[uint16]abi.Policy{}
	active := (x.copyNumber + 1) % abi.PolicyCopies
	return restricted, x.each(func(id uint16, p abi.Policy) error {
		table := uint32(0)
		if !known[id] && p.Egress[active]|p.Ingress[active] != 0 && (were == nil || were[id]) {
			table = noTable
			x.unknown[id] = true
		}
		if !known[id] && (p.Egress[x.copyNumber] != table || p.Ingress[x.copyNumber] != table) {
			p.Egress[x.copyNumber], p.Ingress[x.copyNumber] = table, table
			if err := x.maps.writePolicy(id, p); err != nil {
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
func (x *endpoints) raise(pods map[uint16]abi.Policy) error {
	for id, p := range pods {
		p.Revision++
		if err := x.maps.writePolicy(id, p); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for all endpoint IDs that there may be.
func (x *endpoints) each(f func(id uint16, p abi.Policy) error) error {
	return eachEntry(x.maps.Policies, func(id uint32, p abi.Policy) error { return f(uint16(id), p) })
}

// forgetPolicy says that nothing restricts an ID, which is no endpoint's any more.
func (m Maps) forgetPolicy(id uint16) error {
	p, err := m.readPolicy(id)
	if err != nil {
		return err
	}
	return m.writePolicy(id, abi.Policy{Revision: p.Revision + 1})
}

func (m Maps) writePolicy(id uint16, p abi.Policy) error {
	if err := m.Policies.Put(uint32(id), p); err != nil {
		return fmt.Errorf("write the policy of endpoint %d: %w", id, err)
	}
	return nil
}
