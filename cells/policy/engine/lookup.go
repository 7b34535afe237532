package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Table is a view of the rows of an endpoint in one direction. It is valid until the next [Engine.Apply].
type Table struct{ t *table }

// ID is shared by endpoints with the same policies.
func (t Table) ID() TableID { return t.t.id }

// Layer7 returns the layer 7 rules that its rows have, in no order.
func (t Table) Layer7() []*Layer7 { return slices.Collect(maps.Keys(t.t.layer7s)) }

// Restricts reports whether rules decide; otherwise everything is allowed.
func (t Table) Restricts() bool { return t.t.selected || t.t.unknown }

// Any returns the rows for all classes without rows of their own.
func (t Table) Any() []Row { return t.t.any.rows }

// RowsOf returns the complete rows for a class.
func (t Table) RowsOf(id ClassID) []Row {
	for c, set := range t.t.rows {
		if c.id == id {
			return set.rows
		}
	}
	return t.Any()
}

// Rows gives the classes that have rows of their own, with these. They are complete.
func (t Table) Rows() iter.Seq2[ClassID, []Row] {
	return func(yield func(ClassID, []Row) bool) {
		for c, set := range t.t.rows {
			if !yield(c.id, set.rows) {
				return
			}
		}
	}
}

// Lookup finds the decision in a class's rows, as a datapath does: of the rows that match, the most exact one.
func Lookup(rows []Row, protocol model.Protocol, port uint16) (Decision, bool) {
	matching := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return r.Protocol != 0 && (r.Protocol != protocol || (r.Port^port)>>(16-r.Bits) != 0)
	})
	if len(matching) == 0 {
		return Decision{}, false
	}
	best := slices.MaxFunc(matching, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Bits, y.Bits))
	})
	return best.Decision, true
}
