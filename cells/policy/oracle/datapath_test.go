package oracle_test

import (
	"fmt"
	"maps"
	"net/netip"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

// datapath keeps maps as a real one does: it copies from the engine only what a change names.
type datapath struct {
	e         *engine.Engine
	addresses map[netip.Addr]engine.ClassID
	prefixes  map[netip.Prefix]engine.ClassID
	endpoints map[string][2]engine.TableID
	tables    map[engine.TableID]*rows
}

type rows struct {
	any     []engine.Row
	classes map[engine.ClassID][]engine.Row
}

func newDatapath(e *engine.Engine) *datapath {
	return &datapath{e, map[netip.Addr]engine.ClassID{}, map[netip.Prefix]engine.ClassID{}, map[string][2]engine.TableID{}, map[engine.TableID]*rows{}}
}

// follow makes the change. It returns an error for an address whose class before was another one than the change says.
func (d *datapath) follow(c engine.Change) (err error) {
	for _, change := range c.Addresses {
		addr := change.Address
		if before := d.addresses[addr]; before != change.Before {
			err = fmt.Errorf("the class of %s was %d, and the change says %d", addr, before, change.Before)
		}
		delete(d.addresses, addr)
		if end := d.e.End(addr); end.Endpoint != "" {
			d.addresses[addr] = end.Class
		}
	}
	now := maps.Collect(d.e.Prefixes())
	for _, cidr := range c.Prefixes {
		delete(d.prefixes, cidr)
		if class, ok := now[cidr]; ok {
			d.prefixes[cidr] = class
		}
	}
	for _, id := range c.Endpoints {
		delete(d.endpoints, id)
		egress, ok := d.e.Table(id, model.Egress)
		if ingress, _ := d.e.Table(id, model.Ingress); ok {
			d.endpoints[id] = [2]engine.TableID{egress.ID(), ingress.ID()}
		}
	}
	current := d.current()
	for _, change := range c.Tables {
		switch {
		case change.Removed:
			delete(d.tables, change.Table)
		case change.New:
			d.tables[change.Table] = &rows{current[change.Table].Any(), maps.Collect(current[change.Table].Rows())}
		}
		for _, own := range change.Classes {
			if own.Rows == nil {
				delete(d.tables[change.Table].classes, own.Class)
			} else {
				d.tables[change.Table].classes[own.Class] = own.Rows
			}
		}
	}
	return err
}

func (d *datapath) current() map[engine.TableID]engine.Table {
	tables := map[engine.TableID]engine.Table{}
	for id := range d.endpoints {
		for _, direction := range []model.Direction{model.Egress, model.Ingress} {
			table, _ := d.e.Table(id, direction)
			tables[table.ID()] = table
		}
	}
	return tables
}

// decide looks the verdict up in the maps. It has none for an end that is not local, and for a pod with itself.
func (d *datapath) decide(subject, peer netip.Addr, direction model.Direction, c oracle.Connection) (engine.Decision, bool) {
	owner, other := d.e.End(subject).Endpoint, d.e.End(peer).Endpoint
	tables, ok := d.endpoints[owner]
	if !ok || owner == other {
		return engine.Decision{}, false
	}
	table := d.tables[tables[direction]]
	set, ok := table.classes[d.class(peer)]
	if !ok {
		set = table.any
	}
	return engine.Lookup(set, c.Protocol, c.Port)
}

func (d *datapath) isLocal(addr netip.Addr) bool {
	_, ok := d.endpoints[d.e.End(addr).Endpoint]
	return ok
}

func (d *datapath) class(addr netip.Addr) engine.ClassID {
	if class, ok := d.addresses[addr]; ok {
		return class
	}
	class, longest := engine.FixedClass(model.World), -1
	for cidr, c := range d.prefixes {
		if cidr.Contains(addr) && cidr.Bits() > longest {
			class, longest = c, cidr.Bits()
		}
	}
	return class
}
