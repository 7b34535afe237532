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

// classMove is that of addresses from one class to another.
type classMove struct{ from, to *class }

// endpointsGaining returns the keys of the local endpoints, without new ones, that may have connections of TCP which were accepted without layer 7 rules before the update, and
// have some after it. It may return too many, and never too few.
func (tx *transaction) endpointsGaining() []string {
	if len(tx.e.layer7s.byNumber) == 0 || tx.e.size.exceeded { // when it has exceeded its size, another engine takes its place
		return nil
	}
	found := map[string]struct{}{}
	known := map[[2]*table]bool{}
	moves := tx.moves()
	for _, r := range tx.replaced {
		tables := [2]*table{r.old, r.now}
		gains, ok := known[tables]
		if !ok {
			gains = r.mayGain(moves)
			known[tables] = gains
		}
		if gains {
			found[r.endpoint] = struct{}{}
		}
	}
	if tables := tx.tablesGaining(moves); len(tables) > 0 {
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

// mayGain compares all rows of both tables, whatever the class, as addresses may have other classes, too.
func (r replacement) mayGain(moves map[classMove]struct{}) bool {
	if len(r.now.layer7s) == 0 {
		return false
	}
	direct := r.old.tcpRows(isDirect)
	for m := range moves {
		if r.old.frees(m.from.key.kind) {
			direct = append(direct, Row{}) // every port of every protocol
			break
		}
	}
	return overlap(direct, r.now.tcpRows(isProxied))
}

// tablesGaining are those that stay, and in which rows of a class have got layer 7 rules, or addresses have got a class whose rows have some.
func (tx *transaction) tablesGaining(moves map[classMove]struct{}) map[*table]struct{} {
	found := map[*table]struct{}{}
	for key, before := range tx.rowsBefore {
		if !tx.classes[key.class].made && rowsGain(key.table.orAny(before), key.table.rowsOf(key.class)) {
			found[key.table] = struct{}{}
		}
	}
	for m := range moves {
		for t := range tx.e.tablesDistinguishing(tx.keyBefore(m.from), m.to.key) {
			if change := tx.tables[t]; len(t.layer7s) == 0 || change != nil && change.New {
				continue
			}
			before, changed := tx.rowsBefore[rowsKey{t, m.from}]
			if !changed {
				before = t.rows[m.from]
			}
			if rowsGain(t.orAny(before), t.rowsOf(m.to)) {
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

// moves are the classes that addresses had and have, as far as they differ. Addresses that endpoints no longer have are left out: their connections have ended.
func (tx *transaction) moves() map[classMove]struct{} {
	found := map[classMove]struct{}{}
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
			found[classMove{from, to}] = struct{}{}
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
			if r.concernsTCP() && is(r.Decision) {
				found[Row{Protocol: r.Protocol, Port: r.Port, Bits: r.Bits}] = struct{}{}
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

func (r Row) concernsTCP() bool { return r.Protocol == 0 || r.Protocol == model.TCP }

// overlap reports whether a row of both may be for one port.
func overlap(xs, ys []Row) bool {
	return slices.ContainsFunc(xs, func(x Row) bool { return slices.ContainsFunc(ys, x.overlaps) })
}

func (r Row) overlaps(other Row) bool { return (r.Port^other.Port)>>(16-min(r.Bits, other.Bits)) == 0 }

// rowsGain reports whether a port of TCP may be accepted with layer 7 rules, which was accepted without.
func rowsGain(before, after *rowSet) bool {
	if before == after {
		return false
	}
	for _, now := range after.rows {
		if !now.concernsTCP() || !isProxied(now.Decision) {
			continue
		}
		for _, was := range before.rows {
			if was.concernsTCP() && isDirect(was.Decision) && was.overlaps(now) {
				return true
			}
		}
	}
	return false
}
