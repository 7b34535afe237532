package policymap

import (
	"fmt"
	"maps"
	"slices"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

func (w *Writer) update(e *engine.Engine, change engine.Change, ids map[string]uint16) error {
	u := &update{maps: w.maps, policyCopy: w.current, e: e, ids: ids, affected: map[engine.TableID]bool{}, raise: map[string]bool{}}
	p := u.plan(change)
	if err := u.check(change, p); err != nil {
		return err
	}
	var views map[engine.TableID]engine.Table
	if slices.ContainsFunc(change.Tables, func(t engine.TableChange) bool { return t.New }) {
		views = viewsOf(e, ids)
	}
	for _, t := range change.Tables {
		if t.New {
			if err := u.tables.add(views[t.Table]); err != nil {
				return err
			}
		}
		for _, own := range t.Classes {
			if err := u.changeClass(t.Table, own); err != nil {
				return err
			}
		}
	}
	if err := u.moveAddresses(change.Addresses, p); err != nil {
		return err
	}
	if err := u.changeEndpoints(change.Endpoints); err != nil {
		return err
	}
	for _, t := range change.Tables {
		if t.Removed {
			u.removals = append(u.removals, func() error { return u.tables.remove(t.Table) })
		}
	}
	w.removeLater(u.removals...)
	return nil
}

// update is one change of the active copy.
type update struct {
	maps Maps
	*policyCopy
	e        *engine.Engine
	ids      map[string]uint16
	affected map[engine.TableID]bool // decisions in the table have changed
	raise    map[string]bool         // endpoints that need a new revision for another reason
	removals []func() error
}

// changeClass points a class in a table to other rows. What is removed is removed later: until the addresses have left
// a class that is gone, and a program that has read their class is through, the class keeps its rows.
func (u *update) changeClass(id engine.TableID, own engine.ClassRows) error {
	t := u.tables.byID[id]
	if t == nil {
		return fmt.Errorf("table %d of the policy is not in the maps", id)
	}
	u.affected[id] = true
	switch {
	case own.Rows != nil:
		return u.tables.setRows(t, own.Class, own.Rows)
	case t.rows[own.Class] == nil:
		return nil
	case !own.Gone:
		t.any.refs++
		if err := u.tables.point(t, own.Class, t.any); err != nil {
			return err
		}
	}
	set := t.rows[own.Class]
	u.removals = append(u.removals, func() error {
		if t.rows[own.Class] != set {
			return nil // it has rows again
		}
		return u.tables.removeRows(t, own.Class)
	})
	return nil
}

// moveAddresses gives addresses their classes, and finds the tables whose decision about one of them changes.
func (u *update) moveAddresses(list []engine.AddressChange, p plan) error {
	for id, t := range u.tables.byID {
		for m := range p.moves {
			if t.setOf(m.from) != t.setOf(m.to) {
				u.affected[id] = true
			}
		}
	}
	for _, c := range list {
		var err error
		if end := u.e.End(c.Address); end.Endpoint != "" {
			err = u.addresses.set(u.e, c.Address, c.Before, end.Class)
		} else {
			err = u.addresses.remove(c.Address, c.Before)
		}
		if err != nil {
			return err
		}
	}
	for _, cidr := range p.setPrefix {
		if err := u.addresses.setPrefix(u.e, cidr, p.now[cidr]); err != nil {
			return err
		}
	}
	for _, cidr := range p.freePrefix {
		if err := u.addresses.removePrefix(u.e, cidr); err != nil {
			return err
		}
	}
	return nil
}

// changeEndpoints gives endpoints their tables, and raises the revision of all whose decisions may have changed.
func (u *update) changeEndpoints(list []string) error {
	for _, key := range list {
		u.raise[key] = true
	}
	for key, ep := range u.endpoints.byKey {
		if u.affected[ep.tables[model.Egress]] || u.affected[ep.tables[model.Ingress]] {
			u.raise[key] = true
		}
	}
	for key := range u.raise {
		if was, ok := u.endpoints.byKey[key]; ok && was.id != u.ids[key] {
			delete(u.endpoints.byKey, key)
			if err := u.maps.removePolicy(was.id); err != nil { // before another endpoint gets the ID
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(u.raise)) {
		if id, local := u.ids[key]; local {
			if err := u.endpoints.set(u.e, key, id); err != nil {
				return err
			}
		}
	}
	return nil
}
