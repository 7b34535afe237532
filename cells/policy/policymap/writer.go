package policymap

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// Writer is the only one that writes the maps. It is for one goroutine at a time.
type Writer struct {
	maps      Maps
	current   *policyCopy     // the active one, if this agent has written it; else nil
	stale     bool            // the copy that is not active has entries
	unknown   map[uint16]bool // of the last copy that became active; nil before the first one
	pending   pending
	removable chan struct{} // with room for one
}

// New returns a writer. What former agents wrote stays in force until the first [Writer.Apply].
func New(m Maps) *Writer { return &Writer{maps: m, stale: true, removable: make(chan struct{}, 1)} }

// Removable is sent to when there is something that [Writer.Clean] can remove.
func (w *Writer) Removable() <-chan struct{} { return w.removable }

// Clean removes what nothing points to any more, as far as no program can need it.
func (w *Writer) Clean() (err error) {
	if w.pending, err = w.pending.run(); err != nil {
		return err
	}
	w.removeLater() // what the removals have let go of
	return nil
}

// Apply makes the maps say what the engine says after a change; nil stands for everything. ids has the ID of each local endpoint by its key. The first call, and the
// one after an error, writes everything. After an error the last policy stays in force, or for some packets the new one.
func (w *Writer) Apply(e *engine.Engine, change *engine.Change, ids map[string]uint16) error {
	if err := w.Clean(); err != nil {
		return err
	}
	if w.current == nil || change == nil {
		return w.rewrite(e, ids)
	}
	err := w.update(e, *change, ids)
	if errors.Is(err, errNotInPlace) {
		return w.rewrite(e, ids)
	}
	if err != nil {
		w.current = nil
	}
	return err
}

// rewrite writes a whole copy, and makes it active.
func (w *Writer) rewrite(e *engine.Engine, ids map[string]uint16) error {
	w.current = nil
	active, err := w.maps.activeCopy()
	if err != nil {
		return err
	}
	next := newPolicyCopy(w.maps, (active+1)%abi.PolicyCopies)
	w.pending = nil
	w.stale = true
	if err := clearCopy(w.maps, next.number); err != nil { // also of what somebody else has written
		return err
	}
	if err := next.write(e, ids); err != nil {
		return err
	}
	restricted, err := next.denyUnknown(w.unknown)
	if err != nil {
		return err
	}
	if err := w.maps.ActiveCopy.Put(uint32(0), next.number); err != nil {
		return fmt.Errorf("activate a copy of the policy: %w", err)
	}
	if err := next.raise(restricted); err != nil {
		return err
	}
	w.current, w.unknown = next, next.unknown
	w.removeLater(func() error {
		if err := clearCopy(w.maps, active); err != nil {
			return err
		}
		w.stale = false
		return nil
	})
	return nil
}

// DeniesUnknown reports whether the maps restrict endpoints that Apply was not told of, and a former agent was.
func (w *Writer) DeniesUnknown() bool { return w.current != nil && len(w.current.unknown) > 0 }

// Forget lets go of an ID that a former agent has restricted, and whose endpoint is gone. An ID that the last Apply was told of stays as it is.
func (w *Writer) Forget(id uint16) error {
	if w.current != nil && !w.unknown[id] {
		return nil
	}
	c := policyCopy{maps: w.maps}
	if p, err := w.maps.readPolicy(id); err != nil || !restricts(p) {
		return err
	}
	if err := c.forget(id); err != nil {
		return err
	}
	delete(w.unknown, id)
	return nil
}

// removeLater has these run, and then the rows removed that nothing points to.
func (w *Writer) removeLater(list ...func() error) {
	if w.current != nil && len(w.current.unused) > 0 {
		list = append(list, w.current.takeUnused())
	}
	if len(list) == 0 {
		return
	}
	r := &removals{list: list}
	r.whenSafe(w.removable)
	w.pending = append(w.pending, r)
}

func (w *Writer) update(e *engine.Engine, change engine.Change, ids map[string]uint16) error {
	u := &update{policyCopy: w.current, e: e, ids: ids, affected: map[engine.TableID]bool{}, raise: map[string]bool{}}
	p := u.plan(change)
	if err := u.check(change, p); err != nil {
		return err
	}
	if err := u.apply(change, p); err != nil {
		return err
	}
	w.removeLater(u.removals...)
	return nil
}

// update is one change of the active copy.
type update struct {
	*policyCopy
	e        *engine.Engine
	ids      map[string]uint16
	affected map[engine.TableID]bool // decisions in the table have changed
	raise    map[string]bool         // endpoints that need a new revision for another reason
	removals []func() error
}

func (u *update) apply(change engine.Change, p plan) error {
	var views map[engine.TableID]engine.Table
	if slices.ContainsFunc(change.Tables, func(t engine.TableChange) bool { return t.New }) {
		views = viewsOf(u.e, u.ids)
	}
	for _, t := range change.Tables {
		if t.New {
			if err := u.addTable(views[t.Table]); err != nil {
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
			u.removals = append(u.removals, func() error { return u.removeTable(t.Table) })
		}
	}
	return nil
}

func viewsOf(e *engine.Engine, ids map[string]uint16) map[engine.TableID]engine.Table {
	views := map[engine.TableID]engine.Table{}
	for key := range ids {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if t, ok := e.Table(key, d); ok {
				views[t.ID()] = t
			}
		}
	}
	return views
}

// changeClass points a class in a table to other rows. What is removed is removed later: until the addresses have left a class that is gone, and a program that
// has read their class is through, the class keeps its rows.
func (u *update) changeClass(id engine.TableID, own engine.ClassRows) error {
	t := u.tables[id]
	if t == nil {
		return fmt.Errorf("table %d of the policy is not in the maps", id)
	}
	u.affected[id] = true
	switch {
	case own.Rows != nil:
		return u.setRows(t, own.Class, own.Rows)
	case t.rows[own.Class] == nil:
		return nil
	case !own.Gone:
		t.any.refs++
		if err := u.point(t, own.Class, t.any); err != nil {
			return err
		}
	}
	set := t.rows[own.Class]
	u.removals = append(u.removals, func() error {
		if t.rows[own.Class] != set {
			return nil // it has rows again
		}
		return u.removeRows(t, own.Class)
	})
	return nil
}

// moveAddresses gives addresses their classes, and finds the tables in which a decision about one of them changes by that.
func (u *update) moveAddresses(list []netip.Addr, p plan) error {
	for id, t := range u.tables {
		for m := range p.moves {
			if t.setOf(m.from) != t.setOf(m.to) {
				u.affected[id] = true
			}
		}
	}
	for _, addr := range list {
		var err error
		if end := u.e.End(addr); end.Endpoint != "" {
			err = u.setAddress(u.e, addr, end.Class)
		} else {
			err = u.removeAddress(addr)
		}
		if err != nil {
			return err
		}
	}
	for _, cidr := range p.setPrefix {
		if err := u.setPrefix(cidr, p.now[cidr]); err != nil {
			return err
		}
	}
	for _, cidr := range p.freePrefix {
		if err := u.removePrefix(cidr); err != nil {
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
	for key, ep := range u.endpoints {
		if u.affected[ep.tables[model.Egress]] || u.affected[ep.tables[model.Ingress]] {
			u.raise[key] = true
		}
	}
	for key := range u.raise {
		if was, ok := u.endpoints[key]; ok && was.id != u.ids[key] {
			delete(u.endpoints, key)
			if err := u.forget(was.id); err != nil { // before another endpoint gets the ID
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(u.raise)) {
		if id, local := u.ids[key]; local {
			if err := u.setEndpoint(u.e, key, id); err != nil {
				return err
			}
		}
	}
	return nil
}
