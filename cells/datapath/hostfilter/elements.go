package hostfilter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// state has the elements of the table's sets, by the index of their interface, in order. nil stands for no table.
type state map[int][]element

// element is an element of one of the sets; its interface is the key in state.
type element struct {
	set         *set
	protocol    uint8  // of ports and protocols
	first, last uint16 // of ports
	allow       bool   // of the maps
}

func (s state) equal(other state) bool {
	return (s == nil) == (other == nil) && maps.EqualFunc(s, other, slices.Equal[[]element])
}

// add inserts the elements in order.
func (s state) add(link int, elements ...element) {
	s[link] = append(s[link], elements...)
	slices.SortFunc(s[link], func(a, b element) int {
		return cmp.Or(cmp.Compare(a.set.name, b.set.name), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.first, b.first))
	})
}

// stateOf is what the sets should have, or an error that wraps [ErrRows].
func stateOf(d Desired) (state, error) {
	if len(d.Pods) == 0 {
		return nil, nil
	}
	s := make(state, len(d.Enforced))
	for _, p := range d.Pods {
		elements, err := elementsOf(p)
		if err != nil {
			return nil, fmt.Errorf("interface %d: %w", p.Link, err)
		}
		s.add(p.Link, elements...)
	}
	for _, link := range d.Enforced {
		if e := (element{set: enforced}); !slices.Contains(s[link], e) {
			s.add(link, e)
		}
	}
	for link, elements := range s {
		for i := range elements[1:] {
			if elements[i+1].clashes(elements[i]) {
				return nil, fmt.Errorf("interface %d: %w: protocol %d, ports %d to %d come twice", link, ErrRows, elements[i+1].protocol, elements[i+1].first, elements[i+1].last)
			}
		}
	}
	return s, nil
}

// clashes reports whether a packet may match both; e comes after the other one in order.
func (e element) clashes(other element) bool {
	return e.set == other.set && e.protocol == other.protocol && e.first <= other.last
}

func elementsOf(p Pod) ([]element, error) {
	elements := make([]element, 0, len(p.Rows)+2)
	elements = append(elements, element{set: restricted})
	rest := element{set: others}
	for _, r := range p.Rows {
		switch all := r.First == 0 && r.Last == 65535; {
		case r.Protocol == 0 && (all || r.Last == 0):
			rest.allow = r.Allow
		case r.Protocol == 0:
			return nil, fmt.Errorf("%w: ports %d to %d of no protocol", ErrRows, r.First, r.Last)
		case all:
			elements = append(elements, element{set: protocols, protocol: r.Protocol, allow: r.Allow})
		case r.First > r.Last || !hasPorts(r.Protocol):
			return nil, fmt.Errorf("%w: ports %d to %d of protocol %d", ErrRows, r.First, r.Last, r.Protocol)
		default:
			elements = append(elements, element{set: ports, protocol: r.Protocol, first: r.First, last: r.Last, allow: r.Allow})
		}
	}
	return append(elements, rest), nil
}

func hasPorts(protocol uint8) bool {
	return protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP || protocol == unix.IPPROTO_SCTP
}

// encode returns the element as the kernel has it: each part of a key is padded to 32 bits.
func (e element) encode(link int) nftables.SetElement {
	key := binary.NativeEndian.AppendUint32(nil, uint32(link))
	if e.set != enforced && e.set != restricted && e.set != others {
		key = append(key, e.protocol, 0, 0, 0)
	}
	encoded := nftables.SetElement{Key: key}
	if e.set == ports {
		encoded.Key = append(binary.BigEndian.AppendUint16(slices.Clone(key), e.first), 0, 0)
		encoded.KeyEnd = append(binary.BigEndian.AppendUint16(slices.Clone(key), e.last), 0, 0)
	}
	if e.set.isMap {
		encoded.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: denied}
		if e.allow {
			encoded.VerdictData = &expr.Verdict{Kind: expr.VerdictAccept}
		}
	}
	return encoded
}

// decode is the reverse of encode. ok is false for an element that encode cannot have made.
func (s *set) decode(encoded nftables.SetElement) (link int, e element, ok bool) {
	e.set = s
	if len(encoded.Key) != int(s.key.Bytes) {
		return 0, e, false
	}
	link = int(binary.NativeEndian.Uint32(encoded.Key))
	if len(encoded.Key) > 4 {
		e.protocol = encoded.Key[4]
	}
	if s == ports {
		if len(encoded.KeyEnd) != len(encoded.Key) {
			return 0, e, false
		}
		e.first, e.last = binary.BigEndian.Uint16(encoded.Key[8:]), binary.BigEndian.Uint16(encoded.KeyEnd[8:])
	}
	if s.isMap {
		// The value is a netlink attribute, with the verdict's code after its header.
		if len(encoded.Val) < 8 {
			return 0, e, false
		}
		e.allow = int32(binary.BigEndian.Uint32(encoded.Val[4:])) == int32(expr.VerdictAccept)
	}
	return link, e, true
}
