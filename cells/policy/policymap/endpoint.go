package policymap

import (
	"fmt"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// noTable is the number of a table without rows, so that everything is denied.
const noTable = ^uint32(0)

// fromNode is the number of the table of a copy that lets only the node itself in.
func fromNode(copyNumber uint32) uint32 { return noTable - 3 + copyNumber }

// fromNodeKey is the one entry of that table. Its value is abi.RowsAllow.
func fromNodeKey(copyNumber uint32) abi.TableKey {
	return abi.TableKey{Table: fromNode(copyNumber), Class: uint32(engine.FixedClass(model.Host))}
}

// endpoints is a copy's part of the map policies.
type endpoints struct {
	maps       Maps
	copyNumber uint32
	tables     *tables
	byKey      map[string]endpoint
	unknown    map[uint16]bool // IDs of no known endpoint, which are denied everything but their node
	ingress    uint32          // the table of these for what comes to them
}

type endpoint struct {
	id     uint16
	tables [2]engine.TableID // by direction
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

// denyUnknown denies everything to endpoints that the active copy restricts and this one does not know: they may come
// back with the next change. Their node reaches them, as it reaches all pods, if allowHost says so: a kubelet would
// kill them. were are the endpoints of the last copy of this agent; when there was none, all may be such endpoints of a
// previous agent. It returns the endpoints that are or were restricted.
func (x *endpoints) denyUnknown(were map[uint16]bool, allowHost bool) (restricted map[uint16]abi.Policy, err error) {
	if allowHost {
		x.ingress = fromNode(x.copyNumber)
		if err := x.maps.Tables.Put(fromNodeKey(x.copyNumber), uint32(abi.RowsAllow)); err != nil {
			return nil, fmt.Errorf("write the table of unknown endpoints: %w", noRoom(err))
		}
	}
	known := map[uint16]bool{}
	for _, ep := range x.byKey {
		known[ep.id] = true
	}
	restricted = map[uint16]abi.Policy{}
	active := (x.copyNumber + 1) % abi.PolicyCopies
	return restricted, eachEntry(x.maps.Policies, func(number uint32, p abi.Policy) error {
		id := uint16(number)
		egress, ingress := uint32(0), uint32(0)
		if !known[id] && p.Egress[active]|p.Ingress[active] != 0 && (were == nil || were[id]) {
			egress, ingress = noTable, x.ingress
			x.unknown[id] = true
		}
		if !known[id] && (p.Egress[x.copyNumber] != egress || p.Ingress[x.copyNumber] != ingress) {
			p.Egress[x.copyNumber], p.Ingress[x.copyNumber] = egress, ingress
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

// removePolicy says that nothing restricts an ID, which is no endpoint's any more.
func (m Maps) removePolicy(id uint16) error {
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
