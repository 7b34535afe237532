package engine

import (
	"maps"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// updateTables gives changed endpoints their tables, changed classes their rows in the tables that there were, and new
// tables all rows.
func (tx *transaction) updateTables() {
	for ep := range tx.changed {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			tx.assign(ep, d)
		}
	}
	for c, change := range tx.classes {
		tx.updateRows(c, change)
	}
	for _, t := range tx.newTables {
		if t.refs > 0 {
			t.compile(tx.e)
		}
	}
}

func (tx *transaction) assign(ep *local, d model.Direction) {
	e := tx.e
	built, proposed := e.build(ep.endpoint, ep.policies, d)
	ep.proposed[d] = proposed
	t := e.tables[built.key]
	if t == nil {
		t = built
		e.lastTable++
		t.id = e.lastTable
		e.tables[t.key] = t
		for sel := range t.bySelector {
			sel.tables[t] = struct{}{}
		}
		if t.named {
			e.nameTables[t] = struct{}{}
		}
		if d == model.Ingress {
			e.ingressTables[t] = struct{}{}
		}
		if t.kinds {
			e.kindTables[t] = struct{}{}
		}
		tx.newTables = append(tx.newTables, t)
		tx.tables[t] = &TableChange{Table: t.id, New: true}
	}
	old := ep.tables[d]
	if t == old {
		return
	}
	t.refs++
	ep.tables[d] = t
	tx.endpoints[ep.Key] = struct{}{}
	if old != nil {
		tx.releaseTable(old)
	}
}

func (tx *transaction) releaseTable(t *table) {
	if t.refs--; t.refs > 0 {
		return
	}
	delete(tx.e.tables, t.key)
	tx.e.size.addWork(-t.work)
	for l := range t.layer7s {
		l.tables--
	}
	delete(tx.e.nameTables, t)
	delete(tx.e.ingressTables, t)
	delete(tx.e.kindTables, t)
	for sel := range t.bySelector {
		delete(sel.tables, t)
	}
	if change := tx.tables[t]; change != nil && change.New {
		delete(tx.tables, t)
		return
	}
	tx.tables[t] = &TableChange{Table: t.id, Removed: true}
}

// updateRows brings a class up to date in the tables for which it has changed.
func (tx *transaction) updateRows(c *class, change classChange) {
	e := tx.e
	exists := e.classes[c.key] == c
	var affected map[*table]struct{}
	switch {
	case !exists && change.made:
		return
	case exists && !change.made:
		affected = e.tablesDistinguishing(change.old, c.key)
	default:
		affected = e.tablesMentioning(change.old, c.key)
	}
	for t := range affected {
		if t.any == nil || e.size.exceeded {
			continue // new
		}
		before := t.rows[c]
		if exists {
			t.setRows(e, c)
		} else {
			delete(t.rows, c)
		}
		if t.rows[c] == before {
			continue
		}
		if tx.tables[t] == nil {
			tx.tables[t] = &TableChange{Table: t.id}
		}
		own := ClassRows{Class: c.id, Gone: !exists}
		if set := t.rows[c]; set != nil {
			own.Rows = set.rows
		}
		tx.tables[t].Classes = append(tx.tables[t].Classes, own)
	}
}

// tablesDistinguishing returns the tables that may have different rows for classes with these keys.
func (e *Engine) tablesDistinguishing(x, y classKey) map[*table]struct{} {
	if x.ports != y.ports || x.kind != y.kind {
		return e.tablesMentioning(x, y)
	}
	found := map[*table]struct{}{}
	xs, ys := x.uses(), y.uses()
	for _, sel := range slices.Concat(xs, ys) {
		if !slices.Contains(xs, sel) || !slices.Contains(ys, sel) {
			maps.Copy(found, sel.tables)
		}
	}
	return found
}

// tablesMentioning returns the tables that may have rows of their own for a class with one of the keys. A key without selectors stands for no class.
func (e *Engine) tablesMentioning(keys ...classKey) map[*table]struct{} {
	found := map[*table]struct{}{}
	for _, key := range keys {
		if key.labels == nil {
			continue
		}
		for _, sel := range key.uses() {
			maps.Copy(found, sel.tables)
		}
		if key.ports != "" {
			maps.Copy(found, e.nameTables)
		}
		if key.kind != model.Pod {
			maps.Copy(found, e.kindTables)
		}
		if key.kind == model.Host || key.kind == model.Unmanaged {
			maps.Copy(found, e.ingressTables)
		}
	}
	return found
}
