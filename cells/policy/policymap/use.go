package policymap

import "github.com/cilium/ebpf"

// Use is how full a map is, of the part that one copy of the policy may have.
type Use struct {
	Map           string
	Entries, Room int
}

// Use tells how full the maps are. Before the first [Writer.Apply], and after one that failed, nobody knows.
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
