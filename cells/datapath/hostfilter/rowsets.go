package hostfilter

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/internal/nft"
)

// rowset is what decides about a pod's packets.
type rowset struct {
	rows []Row
	to   map[netip.Addr][]Row // to some addresses others do
}

// rowsets numbers sets of rows by a hash of their content. The rows of a number never change: other rows get another
// number. So a packet finds the rows from before a change, those from after it, or none and is denied, but no mixture
// of both. Pods with the same rows share them, and a next agent finds their number by their content.
type rowsets struct {
	state     nft.State         // has the rows of all numbers that were given out
	byContent map[string]uint32 // in the table before the change, and now
	used      map[uint32]bool
}

// newRowsets reads the numbers of a table.
func newRowsets(have, state nft.State) *rowsets {
	r := &rowsets{state: state, byContent: map[string]uint32{}, used: map[uint32]bool{none: true}}
	rows := map[uint32][]string{}
	for _, set := range rowMaps {
		for _, e := range have[set] {
			n := numberIn(e.Key)
			rows[n] = append(rows[n], contentOf(set, e.Key[numberSize:], strings.TrimPrefix(e.End, e.Key[:numberSize]), e.Value))
		}
	}
	contents := map[uint32][]string{}
	for n, list := range rows {
		contents[n] = slices.Clone(list)
	}
	for _, set := range rowsTo {
		for _, e := range have[set] {
			n := numberIn(e.Key)
			contents[n] = append(contents[n], contentOf(set, e.Key[numberSize:], "", joined(rows[numberIn(e.Value)])))
		}
	}
	for n, list := range contents {
		r.used[n] = true
		r.byContent[joined(list)] = n
	}
	return r
}

// none is the number of no rows.
const none = 0

// number adds the rows to the state, and returns their number.
func (r *rowsets) number(s rowset) (uint32, error) {
	elements, content, err := elementsOf(s.rows)
	if err != nil {
		return 0, err
	}
	values := map[netip.Addr]uint32{}
	for addr, rows := range s.to {
		_, other, err := elementsOf(rows)
		if err == nil {
			values[addr], err = r.number(rowset{rows: rows})
		}
		if err != nil {
			return 0, err
		}
		content = append(content, contentOf(rowsToOf(addr), string(addr.AsSlice()), "", joined(other)))
	}
	all := joined(content)
	n, ok := r.byContent[all]
	if !ok {
		n = crc32.ChecksumIEEE([]byte(all))
		for r.used[n] { // by damaged rows, or others with the same hash
			n++
		}
		r.byContent[all], r.used[n] = n, true
	}
	key := number(n)
	if r.state.Has(others, key) {
		return n, nil
	}
	for set, list := range elements {
		for _, e := range list {
			if e.Key = key + e.Key; e.End != "" {
				e.End = key + e.End
			}
			r.state.Add(set, e)
		}
	}
	for addr, value := range values {
		r.state.Add(rowsToOf(addr), nft.Element{Key: key + string(addr.AsSlice()), Value: number(value)})
	}
	return n, nil
}

// contentOf is an element without its number.
func contentOf(set *nft.Set, key, end, value string) string {
	return fmt.Sprintf("%s %x %x %x", set.Name, key, end, value)
}

func joined(contents []string) string {
	slices.Sort(contents)
	return strings.Join(contents, "\n")
}

// rowsToOf is the map that has the address.
func rowsToOf(addr netip.Addr) *nft.Set {
	if addr.Is4() {
		return rowsTo[nft.IPv4.Name]
	}
	return rowsTo[nft.IPv6.Name]
}
