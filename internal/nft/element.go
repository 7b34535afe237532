package nft

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Element is an element of a set, in the bytes that the kernel has.
type Element struct {
	Key string
	// End is of sets with ranges: the last key of a concatenation, or else the first one after the range, "" for none.
	End string
	// Value is of maps: data, or one of [Accept] and [Goto].
	Value string
}

// Elements are the elements of one set, by their keys.
type Elements map[string]Element

// State has the elements of a table's sets. A set that is not in it is empty; a nil State stands for no table.
type State map[*Set]Elements

// Add inserts an element.
func (s State) Add(set *Set, e Element) {
	if s[set] == nil {
		s[set] = Elements{}
	}
	s[set][e.Key] = e
}

// AddPrefixes inserts the prefixes of the family into a set with ranges. Ranges must not overlap: a prefix within a
// wider prefix is left out.
func (s State) AddPrefixes(set *Set, f Family, prefixes []netip.Prefix) {
	var last netip.Prefix
	for _, p := range slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare) { // a wider one comes first
		if f.has(p.Addr()) && !last.Overlaps(p) {
			s.Add(set, Prefix(p))
			last = p
		}
	}
}

// AddAddresses inserts the addresses of the family.
func (s State) AddAddresses(set *Set, f Family, addrs []netip.Addr) {
	for _, addr := range addrs {
		if addr = addr.Unmap(); f.has(addr) {
			s.Add(set, Element{Key: string(addr.AsSlice())})
		}
	}
}

// Has reports whether the set has an element with the key.
func (s State) Has(set *Set, key string) bool {
	_, ok := s[set][key]
	return ok
}

func (s State) equal(other State, sets []*Set) bool {
	if (s == nil) != (other == nil) {
		return false
	}
	return !slices.ContainsFunc(sets, func(set *Set) bool { return !maps.Equal(s[set], other[set]) })
}

// without returns the elements that the other one does not have.
func (e Elements) without(other Elements) (list []Element) {
	for key, one := range e {
		if found, ok := other[key]; !ok || found != one {
			list = append(list, one)
		}
	}
	return list
}

// Prefix is the element for all addresses of a prefix, in a set of addresses with ranges.
func Prefix(p netip.Prefix) Element {
	p = p.Masked()
	first, end := p.Addr().AsSlice(), p.Addr().AsSlice()
	for bit := p.Bits() - 1; bit >= 0; bit-- { // adds one to the prefix
		end[bit/8] ^= 0x80 >> (bit % 8)
		if end[bit/8]&(0x80>>(bit%8)) != 0 {
			return Element{Key: string(first), End: string(end)}
		}
	}
	return Element{Key: string(first)} // up to the last address
}

// Accept is the value of a map of verdicts that accepts the packet.
func Accept() string { return verdict(expr.VerdictAccept, "") }

// Goto is the value of a map of verdicts that goes on with a chain.
func Goto(chain string) string { return verdict(expr.VerdictGoto, chain) }

func verdict(kind expr.VerdictKind, chain string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(int32(kind)))) + chain
}

// encode appends the element in the form of the library.
func (s *Set) encode(to []nftables.SetElement, e Element) []nftables.SetElement {
	first := nftables.SetElement{Key: []byte(e.Key)}
	switch {
	case s.Value == nftables.TypeVerdict && len(e.Value) >= 4:
		kind := expr.VerdictKind(int32(binary.BigEndian.Uint32([]byte(e.Value))))
		first.VerdictData = &expr.Verdict{Kind: kind, Chain: e.Value[4:]}
	case s.isMap():
		first.Val = []byte(e.Value)
	}
	if e.End == "" {
		return append(to, first)
	}
	if s.isConcatenation() {
		first.KeyEnd = []byte(e.End)
		return append(to, first)
	}
	return append(to, first, nftables.SetElement{Key: []byte(e.End), IntervalEnd: true})
}

// decode is the reverse of encode, for all elements of a set. ok is false when encode cannot have made them.
func (s *Set) decode(list []nftables.SetElement) (elements Elements, ok bool) {
	elements = make(Elements, len(list))
	isInterval := s.Ranges && !s.isConcatenation()
	if isInterval {
		slices.SortFunc(list, func(a, b nftables.SetElement) int {
			return cmp.Or(slices.Compare(a.Key, b.Key), endsFirst(a.IntervalEnd, b.IntervalEnd))
		})
	}
	for i := 0; i < len(list); i++ {
		encoded := list[i]
		if len(encoded.Key) != int(s.Key.Bytes) || encoded.IntervalEnd {
			return nil, false
		}
		e := Element{Key: string(encoded.Key), End: string(encoded.KeyEnd)}
		if isInterval && i+1 < len(list) && list[i+1].IntervalEnd {
			i++
			e.End = string(list[i].Key)
		}
		switch {
		case s.Value == nftables.TypeVerdict:
			if e.Value, ok = decodeVerdict(encoded.Val); !ok {
				return nil, false
			}
		case s.isMap():
			e.Value = string(encoded.Val)
		}
		elements[e.Key] = e
	}
	return elements, true
}

func endsFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// decodeVerdict reads netlink attributes: the code, and the chain if there is one.
func decodeVerdict(attributes []byte) (value string, ok bool) {
	const header = 4
	var code, chain string
	for len(attributes) >= header {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < header || size > len(attributes) {
			return "", false
		}
		switch content := string(attributes[header:size]); binary.NativeEndian.Uint16(attributes[2:]) {
		case unix.NFTA_VERDICT_CODE:
			code = content
		case unix.NFTA_VERDICT_CHAIN:
			chain = content[:max(0, len(content)-1)] // without the zero byte
		}
		attributes = attributes[min((size+3)&^3, len(attributes)):]
	}
	return code + chain, len(code) == 4
}
