package engine

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"porin.dev/porin/cells/policy/model"
)

// replacement is an endpoint's table that takes the place of another one.
type replacement struct {
	endpoint string
	old, now *table
}

// rowsKey is a class in a table.
type rowsKey struct {
	table *table
	class *class
}

// gaining returns the keys of local endpoints with peers that may have got layer 7 rules for connections of TCP which were accepted without any before the update.
// It has no endpoint that is new.
func (tx *transaction) gaining() []string {
	if tx.e.size.exceeded {
		return nil
	}
	found := map[string]struct{}{}
	known := map[[2]*table]bool{}
	moves := tx.moves()
	for _, r := range tx.replaced {
		tables := [2]*table{r.old, r.now}
		gains, ok := known[tables]
		if !ok {
			gains = r.gains(moves)
			known[tables] = gains
		}
		if gains {
			found[r.endpoint] = struct{}{}
		}
	}
	if tables := tx.gainingTables(moves); len(tables) > 0 {
		for key, ep := range tx.e.local {
			for _, t := range ep.tables {
				if _, ok := tables[t]; ok {
					found[key] = struct{}{}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// gains compares all rows of both tables: addresses may have other classes, too.
func (r replacement) gains(moves map[[2]*class]struct{}) bool {
	if len(r.now.layer7s) == 0 {
		return false
	}
	direct := r.old.tcpRows(isDirect)
	for m := range moves {
		if r.old.frees(m[0].key.kind) {
			direct = append(direct, Row{})
			break
		}
	}
	return overlap(direct, r.now.tcpRows(isProxied))
}

// gainingTables are those of before in which a class has got such rows, or an address a class with such rows.
func (tx *transaction) gainingTables(moves map[[2]*class]struct{}) map[*table]struct{} {
	found := map[*table]struct{}{}
	for key, before := range tx.rowsBefore {
		if !tx.classes[key.class].made && gains(key.table.orAny(before), key.table.rowsOf(key.class)) {
			found[key.table] = struct{}{}
		}
	}
	if len(moves) == 0 {
		return found
	}
	for m := range moves {
		for t := range tx.e.tablesThatTell(tx.keyBefore(m[0]), m[1].key) {
			if change := tx.tables[t]; len(t.layer7s) == 0 || change != nil && change.New {
				continue
			}
			before, changed := tx.rowsBefore[rowsKey{t, m[0]}]
			if !changed {
				before = t.rows[m[0]]
			}
			if gains(t.orAny(before), t.rowsOf(m[1])) {
				found[t] = struct{}{}
			}
		}
	}
	return found
}

// keyBefore is the class's key before the update.
func (tx *transaction) keyBefore(c *class) classKey {
	if change, noted := tx.classes[c]; noted && !change.made {
		return change.old
	}
	return c.key
}

// moves are the classes that addresses had and have, as far as they differ. An address that was an endpoint's and is nobody's any more is not looked at.
func (tx *transaction) moves() map[[2]*class]struct{} {
	found := map[[2]*class]struct{}{}
	var gone bart.Table[*class] // ranges
	for cidr, c := range tx.prefixes {
		if _, stays := tx.e.prefixes.Get(cidr); !stays && c != nil {
			gone.Insert(cidr, c)
		}
	}
	add := func(cidr netip.Prefix, from, to *class) {
		if from == nil {
			from = tx.classBefore(cidr, &gone)
		}
		if from != to {
			found[[2]*class{from, to}] = struct{}{}
		}
	}
	for cidr, from := range tx.addresses {
		if m, ok := tx.e.addresses.Get(cidr); ok {
			add(cidr, from, m.class)
		}
	}
	for cidr, from := range tx.prefixes {
		to := tx.e.worldClass()
		if p, ok := tx.e.prefixes.LookupPrefix(cidr); ok {
			to = p.class
		}
		add(cidr, from, to)
	}
	return found
}

// classBefore is the class that addresses of the range had before the update, if no endpoint had them: that of the longest range around it, which may be gone.
func (tx *transaction) classBefore(cidr netip.Prefix, gone *bart.Table[*class]) *class {
	longestGone, ofGone, wasGone := gone.LookupPrefixLPM(cidr)
	for around, p := range tx.e.prefixes.Supernets(cidr) {
		if wasGone && longestGone.Bits() > around.Bits() {
			return ofGone
		}
		c, moved := tx.prefixes[around]
		if !moved {
			c = p.class
		}
		if c != nil {
			return c
		}
	}
	if wasGone {
		return ofGone
	}
	return tx.e.worldClass()
}

func (t *table) rowsOf(c *class) *rowSet { return t.orAny(t.rows[c]) }

func (t *table) orAny(rows *rowSet) *rowSet {
	if rows == nil {
		return t.any
	}
	return rows
}

func isDirect(d Decision) bool { return d.Allowed && d.Layer7 == nil }

func isProxied(d Decision) bool { return d.Allowed && d.Layer7 != nil }

// tcpRows returns the rows for TCP with such a decision, whatever the class, without their decisions.
func (t *table) tcpRows(is func(Decision) bool) []Row {
	found := map[Row]struct{}{}
	for _, set := range t.seen {
		for _, r := range set.rows {
			if (r.Protocol == 0 || r.Protocol == model.TCP) && is(r.Decision) {
				found[Row{Protocol: r.Protocol, Port: r.Port, Bits: r.Bits}] = struct{}{}
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// overlap reports whether a row of both may be for one port.
func overlap(xs, ys []Row) bool {
	return slices.ContainsFunc(xs, func(x Row) bool { return slices.ContainsFunc(ys, x.overlaps) })
}

func (r Row) overlaps(other Row) bool { return (r.Port^other.Port)>>(16-min(r.Bits, other.Bits)) == 0 }

// gains reports whether a port of TCP may be accepted with layer 7 rules, which was accepted without.
func gains(before, after *rowSet) bool {
	if before == after {
		return false
	}
	for _, now := range after.rows {
		if now.Protocol != model.TCP || !isProxied(now.Decision) {
			continue
		}
		for _, was := range before.rows {
			if (was.Protocol == 0 || was.Protocol == model.TCP) && isDirect(was.Decision) && was.overlaps(now) {
				return true
			}
		}
	}
	return false
}
