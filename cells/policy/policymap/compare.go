package policymap

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// The kinds of a [Difference].
const (
	Missing = "missing" // there should be an entry
	Differs = "differs" // the entry should have another value
	Orphan  = "orphan"  // there should be none
)

// Difference is an entry of the maps that is not as the engine says.
type Difference struct {
	Kind   string
	Map    string // "addresses"
	Key    string // for people
	Detail string // what is there, and what should be
}

// Compare returns where the maps are not as the engine says, which must be as in the last call of [Writer.Apply]. When
// that has failed there is nothing to compare.
func (w *Writer) Compare(e *engine.Engine, ids map[string]uint16) ([]Difference, error) {
	if w.current == nil {
		return nil, nil
	}
	active, err := w.maps.activeCopy()
	if err != nil {
		return nil, err
	}
	if active != w.current.number {
		return []Difference{{Differs, "active_copy", "0", fmt.Sprintf("%d instead of %d", active, w.current.number)}}, nil
	}
	c := comparison{maps: w.maps, copy: w.current, e: e, ids: ids, bothCopies: !w.stale}
	for _, compare := range []func() error{c.addresses, c.prefixes, c.tables, c.rows, c.policies} {
		if err := compare(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(c.found, func(x, y Difference) int { return cmp.Or(cmp.Compare(x.Map, y.Map), cmp.Compare(x.Key, y.Key)) })
	return c.found, nil
}

// comparison is one of the active copy with the engine, and of both with what this agent knows that it has written.
type comparison struct {
	maps       Maps
	copy       *policyCopy
	e          *engine.Engine
	ids        map[string]uint16
	bothCopies bool // the copy that is not active should be empty
	found      []Difference
}

func (c *comparison) add(kind, name, key, format string, args ...any) {
	c.found = append(c.found, Difference{kind, name, key, fmt.Sprintf(format, args...)})
}

func (c *comparison) addresses() error {
	want := map[abi.AddressKey]uint32{}
	for addr, class := range c.e.Addresses() {
		want[addressKey(addr, c.copy.number)] = addressValue(c.e, addr, class)
	}
	return compareEntries(c, c.maps.Addresses, entries[abi.AddressKey]{
		name: "addresses", value: "class", want: want, copyOf: func(k abi.AddressKey) uint32 { return k.Copy },
		text: func(k abi.AddressKey) string { return k.Addr.IP().String() },
	})
}

func (c *comparison) prefixes() error {
	want := map[abi.PrefixKey]uint32{prefixKey(allIPv4, c.copy.number): uint32(engine.FixedClass(model.World))}
	for cidr, class := range c.e.Prefixes() {
		want[prefixKey(cidr, c.copy.number)] = prefixValue(c.e, cidr, class)
	}
	return compareEntries(c, c.maps.Prefixes, entries[abi.PrefixKey]{
		name: "prefixes", value: "class", want: want, text: prefixText, copyOf: func(k abi.PrefixKey) uint32 { return k.Copy },
	})
}

func prefixText(k abi.PrefixKey) string {
	addr, bits := netip.AddrFrom16(k.Addr), int(k.Bits)-copyBits
	if addr.Is4In6() && bits >= mappedBits {
		addr, bits = addr.Unmap(), bits-mappedBits
	}
	return fmt.Sprintf("%s/%d", addr, bits)
}

// tables compares what classes have in the tables that endpoints use. Entries of other tables and classes may be there
// that are removed soon.
func (c *comparison) tables() error {
	want, ours := map[abi.TableKey]uint32{}, map[abi.TableKey]uint32{}
	if c.copy.endpoints.ingress != noTable {
		want[fromNodeKey(c.copy.number)] = abi.RowsAllow
	}
	for _, t := range c.copy.tables.byID {
		ours[c.copy.tables.key(t, anyClass)] = t.any.number
		for class, set := range t.rows {
			ours[c.copy.tables.key(t, class)] = set.number
		}
	}
	for _, view := range viewsOf(c.e, c.ids) {
		key := abi.TableKey{Table: numbered(uint32(view.ID()), c.copy.number)}
		want[key] = c.setNumber(view.Any())
		for class, rows := range view.Rows() {
			key.Class = uint32(class)
			want[key] = c.setNumber(rows)
		}
	}
	return compareEntries(c, c.maps.Tables, entries[abi.TableKey]{
		name: "tables", value: "set of rows", want: want, ours: ours, copyOf: func(k abi.TableKey) uint32 { return k.Table % abi.PolicyCopies },
		text: func(k abi.TableKey) string { return fmt.Sprintf("%d class %d", k.Table, k.Class) },
	})
}

// noSet is the number of no set of rows.
const noSet = ^uint32(0)

func (c *comparison) setNumber(rows []engine.Row) uint32 {
	if set := c.copy.rowSets.byContent[contentOf(rows)]; set != nil {
		return set.number
	}
	return noSet
}

func (c *comparison) rows() error {
	want := map[abi.RowKey]uint32{}
	for _, set := range c.copy.rowSets.byContent {
		for i, k := range set.keys {
			want[k] = set.value(i)
		}
	}
	return compareEntries(c, c.maps.Rows, entries[abi.RowKey]{
		name: "rows", value: "verdict", want: want, copyOf: func(k abi.RowKey) uint32 { return k.Rows % abi.PolicyCopies },
		text: func(k abi.RowKey) string {
			return fmt.Sprintf("%d protocol %d port %d/%d", k.Rows, k.Protocol, binary.BigEndian.Uint16(k.Port[:]), max(k.Bits, bitsProtocol)-bitsProtocol)
		},
	})
}

func (c *comparison) policies() error {
	keys := map[uint16]string{}
	for key, id := range c.ids {
		keys[id] = key
	}
	return eachEntry(c.maps.Policies, func(number uint32, p abi.Policy) error {
		id, text := uint16(number), fmt.Sprint(number)
		got := [2]uint32{model.Egress: p.Egress[c.copy.number], model.Ingress: p.Ingress[c.copy.number]}
		key, local := keys[id]
		switch {
		case local:
			for _, d := range []model.Direction{model.Egress, model.Ingress} {
				if table, _ := c.e.Table(key, d); !c.isTable(got[d], table.ID()) {
					c.add(Differs, "policies", text, "%s by table %d instead of %d", d, got[d], c.copy.tables.number(table.ID()))
				}
			}
		case c.copy.endpoints.unknown[id]:
			if got != [2]uint32{model.Egress: noTable, model.Ingress: c.copy.endpoints.ingress} {
				c.add(Differs, "policies", text, "tables %d and %d, and it is an endpoint that nobody knows and that is denied everything but its node", got[0], got[1])
			}
		case got != [2]uint32{}:
			c.add(Orphan, "policies", text, "tables %d and %d, and there is no such endpoint", got[0], got[1])
		}
		return nil
	})
}

// isTable reports whether a number leads to the table, or to none if the table allows everything.
func (c *comparison) isTable(number uint32, id engine.TableID) bool {
	return c.copy.tables.byID[id] != nil && (number == numbered(uint32(id), c.copy.number) || number == c.copy.tables.number(id))
}

// entries are the expected entries of a map of numbers.
type entries[K comparable] struct {
	name, value string
	want        map[K]uint32
	ours        map[K]uint32 // which may be there, too
	copyOf      func(K) uint32
	text        func(K) string
}

func compareEntries[K comparable](c *comparison, m *ebpf.Map, e entries[K]) error {
	found := map[K]bool{}
	err := eachEntry(m, func(k K, got uint32) error {
		want, ok := e.want[k]
		if !ok {
			want, ok = e.ours[k]
		}
		found[k] = true
		switch {
		case ok && got != want:
			c.add(Differs, e.name, e.text(k), "%s %d instead of %d", e.value, got, want)
		case !ok && (c.bothCopies || e.copyOf(k) == c.copy.number):
			c.add(Orphan, e.name, e.text(k), "%s %d in copy %d, and nothing leads there", e.value, got, e.copyOf(k))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for k, want := range e.want {
		if !found[k] {
			c.add(Missing, e.name, e.text(k), "missing, instead of %s %d", e.value, want)
		}
	}
	return nil
}
