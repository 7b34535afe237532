package policymap

import (
	"fmt"

	"github.com/cilium/ebpf"

	"porin.dev/porin/cells/policy/engine"
)

// Use is how full a map is, of the part that one copy of the policy may have.
type Use struct {
	Map           string
	Entries, Room int
}

// Use tells how full the maps are. Before the first [Writer.Apply], and after a failed one, it is unknown.
func (w *Writer) Use() []Use {
	c := w.current
	if c == nil {
		return nil
	}
	of := func(name string, m *ebpf.Map, entries int) Use { return Use{name, entries, room(m)} }
	return []Use{
		of("addresses", w.maps.Addresses, c.addresses.count), of("prefixes", w.maps.Prefixes, c.addresses.prefixes.Size()),
		of("tables", w.maps.Tables, c.tables.entries), of("rows", w.maps.Rows, c.rowSets.rowCount),
	}
}

// Fits returns [ErrNoRoom] when a copy of what the engine says would not fit into the maps. It writes nothing. ids has
// the ID of each local endpoint by its key.
func (m Maps) Fits(e *engine.Engine, ids map[string]uint16) error {
	tables, rows := 0, 0
	sets := map[string]bool{}
	count := func(set []engine.Row) {
		tables++
		content := contentOf(set)
		if _, one := withoutRows(set); !one && !sets[content] {
			sets[content] = true
			rows += len(entriesOf(set))
		}
	}
	for _, view := range viewsOf(e, ids) {
		count(view.Any())
		for _, set := range view.Rows() {
			count(set)
		}
	}
	prefixes := 1 // allIPv4
	for range e.Prefixes() {
		prefixes++
	}
	for _, need := range []struct {
		what    string
		m       *ebpf.Map
		entries int
	}{{"classes in tables", m.Tables, tables}, {"rows of ports", m.Rows, rows}, {"ranges of addresses", m.Prefixes, prefixes}} {
		if need.entries > room(need.m) {
			return fmt.Errorf("%w: %d %s, more than %d", ErrNoRoom, need.entries, need.what, room(need.m))
		}
	}
	return nil
}
