package hostfilter

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nft"
)

// stateOf is what the sets should have after a change of a table, or an error that wraps [ErrRows].
func stateOf(d Desired, have nft.State) (nft.State, error) {
	s := nft.State{}
	rowsets := newRowsets(have, s)
	for _, p := range d.Pods {
		if s.Has(restricted, keyOf(p.Link)) {
			return nil, fmt.Errorf("interface %d: %w: it comes twice", p.Link, ErrRows)
		}
		s.Add(restricted, nft.Element{Key: keyOf(p.Link)})
		to := map[netip.Addr][]Row{}
		for addr, group := range d.Groups {
			if rows, ok := p.OfGroup[group]; ok {
				to[addr] = rows
			}
		}
		n, err := rowsets.number(rowset{p.Rows, to})
		if err != nil {
			return nil, fmt.Errorf("interface %d: %w", p.Link, err)
		}
		s.Add(rowsOf, nft.Element{Key: keyOf(p.Link), Value: number(n)})
	}
	for _, link := range d.Enforced {
		s.Add(enforced, nft.Element{Key: keyOf(link)})
	}
	return s, nil
}

// The verdicts of the maps.
var allow, deny = nft.Accept(), nft.Goto(denied)

// elementsOf are rows as elements of [rowMaps], whose keys have no number yet, and their contents.
func elementsOf(rows []Row) (elements map[*nft.Set][]nft.Element, content []string, err error) {
	elements = map[*nft.Set][]nft.Element{}
	add := func(set *nft.Set, e nft.Element) {
		elements[set] = append(elements[set], e)
		content = append(content, contentOf(set, e.Key, e.End, e.Value))
	}
	rest := deny
	for i, r := range rows {
		verdict := deny
		if r.Allow {
			verdict = allow
		}
		all := r.First == 0 && r.Last == 65535
		for _, other := range rows[:i] {
			if r.clashes(other) {
				return nil, nil, fmt.Errorf("%w: protocol %d, ports %d to %d come twice", ErrRows, r.Protocol, r.First, r.Last)
			}
		}
		key := word(r.Protocol)
		switch {
		case r.Protocol == 0 && (all || r.Last == 0):
			rest = verdict
		case r.Protocol == 0:
			return nil, nil, fmt.Errorf("%w: ports %d to %d of no protocol", ErrRows, r.First, r.Last)
		case all:
			add(protocols, nft.Element{Key: key, Value: verdict})
		case r.Protocol == unix.IPPROTO_ICMP && isType(r):
			add(icmp4Types, nft.Element{Key: word(uint8(r.First)), Value: verdict})
		case r.Protocol == unix.IPPROTO_ICMPV6 && isType(r):
			add(icmp6Types, nft.Element{Key: word(uint8(r.First)), Value: verdict})
		case r.First > r.Last || !hasPorts(r.Protocol):
			return nil, nil, fmt.Errorf("%w: ports %d to %d of protocol %d", ErrRows, r.First, r.Last, r.Protocol)
		case r.First == r.Last:
			add(ports, nft.Element{Key: key + port(r.First), Value: verdict})
		default:
			add(portRanges, nft.Element{Key: key + port(r.First), End: key + port(r.Last), Value: verdict})
		}
	}
	add(others, nft.Element{Value: rest})
	return elements, content, nil
}

// clashes reports whether a packet may match both, and none takes precedence.
func (r Row) clashes(other Row) bool {
	isAll := func(r Row) bool { return r.First == 0 && r.Last == 65535 }
	return r.Protocol == other.Protocol && r.Protocol != 0 && isAll(r) == isAll(other) && r.First <= other.Last && other.First <= r.Last
}

func hasPorts(protocol uint8) bool {
	return protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP || protocol == unix.IPPROTO_SCTP
}

func isType(r Row) bool { return r.First == r.Last && r.Last <= 255 }

// Parts of keys, each padded to 32 bits.
const numberSize = 4

func number(n uint32) string      { return string(binary.NativeEndian.AppendUint32(nil, n)) }
func numberIn(text string) uint32 { return binary.NativeEndian.Uint32([]byte(text)) }
func keyOf(link int) string       { return number(uint32(link)) }
func word(protocol uint8) string  { return string([]byte{protocol, 0, 0, 0}) }
func port(number uint16) string   { return string([]byte{byte(number >> 8), byte(number), 0, 0}) }
