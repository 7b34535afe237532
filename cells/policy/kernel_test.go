package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

var errKernel = errors.New("the kernel says no")

// fakeKernel is an [Enforcer] that decides by what changes have told it, and by nothing else.
type fakeKernel struct {
	mu        sync.Mutex // guards the fields below
	applied   int
	refuse    func(locals map[string]Local) error // nil refuses nothing
	fits      func(*engine.Engine) error          // of Fits and Apply; nil fits everything
	addresses map[netip.Addr]engine.ClassID
	prefixes  map[netip.Prefix]engine.ClassID
	endpoints map[string]fakeEndpoint
	tables    map[engine.TableID]fakeTable
	forgotten []uint16
	written   map[engine.Decision]uint32 // values of rows
	lingering map[uint32]bool            // numbers of rows that are removed later
	denied    map[uint16]bool            // IDs of endpoints that the engine does not know, and that a previous agent has restricted
	check     func(engine.Row)           // of each row that is written; may be nil
}

type fakeEndpoint struct {
	id     uint16
	tables [2]engine.TableID
}

type fakeTable struct {
	any  []engine.Row
	rows map[engine.ClassID][]engine.Row
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		addresses: map[netip.Addr]engine.ClassID{}, prefixes: map[netip.Prefix]engine.ClassID{},
		endpoints: map[string]fakeEndpoint{}, tables: map[engine.TableID]fakeTable{}, written: map[engine.Decision]uint32{},
	}
}

// refuseWith makes every change fail from now on; nil ends that.
func (k *fakeKernel) refuseWith(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = func(map[string]Local) error { return err }
}

func (k *fakeKernel) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.applied
}

func (k *fakeKernel) Apply(e *engine.Engine, changed *engine.Change, locals map[string]Local) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied++
	if k.refuse != nil {
		if err := k.refuse(locals); err != nil {
			return err
		}
	}
	if k.fits != nil {
		if err := k.fits(e); err != nil {
			return err
		}
	}
	change := k.everything(e, locals)
	if changed != nil {
		change = *changed
	} else {
		clear(k.addresses)
		clear(k.prefixes)
		clear(k.endpoints)
		clear(k.tables)
	}
	for _, c := range change.Addresses {
		delete(k.addresses, c.Address)
		if end := e.End(c.Address); end.Endpoint != "" {
			k.addresses[c.Address] = end.Class
		}
	}
	for _, prefix := range change.Prefixes {
		delete(k.prefixes, prefix)
	}
	for prefix, class := range e.Prefixes() {
		if slices.Contains(change.Prefixes, prefix) {
			k.prefixes[prefix] = class
		}
	}
	k.applyTables(e, change, locals)
	for _, key := range change.Endpoints {
		local, ok := locals[key]
		if !ok {
			delete(k.endpoints, key)
			continue
		}
		egress, _ := e.Table(key, model.Egress)
		ingress, _ := e.Table(key, model.Ingress)
		k.endpoints[key] = fakeEndpoint{local.ID, [2]engine.TableID{egress.ID(), ingress.ID()}}
	}
	return nil
}

func (k *fakeKernel) Fits(e *engine.Engine, _ map[string]Local) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fits != nil {
		return k.fits(e)
	}
	return nil
}

func (k *fakeKernel) RemoveEndpoint(id uint16) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgotten = append(k.forgotten, id)
	return nil
}

func (k *fakeKernel) Verdict(q Question) (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ep := range k.endpoints {
		if ep.id == q.Local.ID {
			return k.verdict(ep, q.Direction, q.Peer, q.Protocol, q.Port), nil
		}
	}
	if k.denied[q.Local.ID] {
		return engine.ValueDeny, nil
	}
	return engine.ValueAllow, nil
}

// verdict is the value of the row, as it was when it was written.
func (k *fakeKernel) verdict(ep fakeEndpoint, d model.Direction, peer netip.Addr, protocol model.Protocol, port uint16) uint32 {
	o, ok := engine.Lookup(k.rowsOf(ep, d, peer), protocol, port)
	if !ok {
		return engine.ValueDeny
	}
	return k.written[o]
}

// note keeps what the values of rows are now.
func (k *fakeKernel) note(sets ...[]engine.Row) {
	for _, rows := range sets {
		for _, r := range rows {
			k.written[r.Decision] = r.Decision.Value()
			if k.check != nil {
				k.check(r)
			}
		}
	}
}

// Layer7 has the numbers of all rows.
func (k *fakeKernel) Layer7() (map[uint32]bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	numbers := map[uint32]bool{}
	for _, t := range k.tables {
		for _, rows := range append(slices.Collect(maps.Values(t.rows)), t.any) {
			for _, r := range rows {
				if value := k.written[r.Decision]; value > engine.ValueAllow {
					numbers[value] = true
				}
			}
		}
	}
	maps.Copy(numbers, k.lingering)
	return numbers, nil
}

// Compare finds damaged endpoints alone.
func (k *fakeKernel) Compare(e *engine.Engine, locals map[string]Local) (found []Difference, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, local := range locals {
		if table, _ := e.Table(key, model.Ingress); k.endpoints[key].tables[model.Ingress] != table.ID() {
			found = append(found, Difference{"differs", "policies", fmt.Sprint(local.ID), "another table"})
		}
	}
	return found, nil
}

// everything is a change from nothing.
func (k *fakeKernel) everything(e *engine.Engine, locals map[string]Local) (c engine.Change) {
	for addr := range e.Addresses() {
		c.Addresses = append(c.Addresses, engine.AddressChange{Address: addr})
	}
	for prefix := range e.Prefixes() {
		c.Prefixes = append(c.Prefixes, prefix)
	}
	tables := map[engine.TableID]bool{}
	for id := range locals {
		c.Endpoints = append(c.Endpoints, id)
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if t, ok := e.Table(id, d); ok && !tables[t.ID()] {
				tables[t.ID()] = true
				c.Tables = append(c.Tables, engine.TableChange{Table: t.ID(), New: true})
			}
		}
	}
	return c
}

func (k *fakeKernel) applyTables(e *engine.Engine, change engine.Change, locals map[string]Local) {
	inUse := map[engine.TableID]engine.Table{}
	for id := range locals {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if t, ok := e.Table(id, d); ok {
				inUse[t.ID()] = t
			}
		}
	}
	for _, c := range change.Tables {
		if c.Removed {
			delete(k.tables, c.Table)
			continue
		}
		t := inUse[c.Table]
		all := maps.Collect(t.Rows())
		if c.New {
			k.tables[c.Table] = fakeTable{t.Any(), all}
			k.note(append(slices.Collect(maps.Values(all)), t.Any())...)
		}
		for _, class := range c.Classes {
			delete(k.tables[c.Table].rows, class.Class)
			if class.Rows != nil {
				k.tables[c.Table].rows[class.Class] = class.Rows
				k.note(class.Rows)
			}
		}
	}
}

// id returns the endpoint ID that the kernel has for a key; 0 for none.
func (k *fakeKernel) id(key string) uint16 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.endpoints[key].id
}

// allows decides about a TCP connection between two endpoints.
func (k *fakeKernel) allows(t testing.TB, from, to desiredEndpoint, port uint16) bool {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.decide(t, from, model.Egress, to.Addresses[0], port) && k.decide(t, to, model.Ingress, from.Addresses[0], port)
}

func (k *fakeKernel) decide(t testing.TB, ep desiredEndpoint, d model.Direction, peer netip.Addr, port uint16) bool {
	t.Helper()
	known, ok := k.endpoints[ep.Key]
	if !ok {
		if ep.Local {
			t.Errorf("the kernel does not know %s", ep.Key)
		}
		return true
	}
	if _, ok := k.tables[known.tables[d]]; !ok {
		t.Errorf("the kernel does not have the %s table %d of %s", d, known.tables[d], ep.Key)
	}
	return k.verdict(known, d, peer, model.TCP, port) != engine.ValueDeny
}

func (k *fakeKernel) rowsOf(ep fakeEndpoint, d model.Direction, peer netip.Addr) []engine.Row {
	table := k.tables[ep.tables[d]]
	if rows, ok := table.rows[k.classOf(peer)]; ok {
		return rows
	}
	return table.any
}

func (k *fakeKernel) classOf(addr netip.Addr) engine.ClassID {
	if class, ok := k.addresses[addr]; ok {
		return class
	}
	best, bits := engine.FixedClass(model.World), -1
	for prefix, class := range k.prefixes {
		if prefix.Contains(addr) && prefix.Bits() > bits {
			best, bits = class, prefix.Bits()
		}
	}
	return best
}
