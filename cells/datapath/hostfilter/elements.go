package hostfilter

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nft"
)

// stateOf is what the sets should have, or an error that wraps [ErrRows]. numbers has the number of each group.
func stateOf(d Desired, numbers map[Group]uint32) (nft.State, error) {
	s := nft.State{}
	for _, p := range d.Pods {
		key := keyOf(p.Link)
		if s.Has(restricted, key) {
			return nil, fmt.Errorf("interface %d: %w: it comes twice", p.Link, ErrRows)
		}
		s.Add(restricted, nft.Element{Key: key})
		if err := addRows(s, number(0)+key, p.Rows); err != nil {
			return nil, fmt.Errorf("interface %d: %w", p.Link, err)
		}
		for group, rows := range p.OfGroup {
			if err := addRows(s, number(numbers[group])+key, rows); err != nil {
				return nil, fmt.Errorf("interface %d: %w", p.Link, err)
			}
		}
	}
	for addr, group := range d.Groups {
		s.Add(groupsOf(addr), nft.Element{Key: string(addr.AsSlice()), Value: number(numbers[group])})
	}
	for _, link := range d.Enforced {
		s.Add(enforced, nft.Element{Key: keyOf(link)})
	}
	return s, nil
}

// The verdicts of the maps.
var allow, deny = nft.Accept(), nft.Goto(denied)

func addRows(s nft.State, key string, rows []Row) error {
	rest := deny
	for i, r := range rows {
		verdict := deny
		if r.Allow {
			verdict = allow
		}
		all := r.First == 0 && r.Last == 65535
		for _, other := range rows[:i] {
			if r.clashes(other) {
				return fmt.Errorf("%w: protocol %d, ports %d to %d come twice", ErrRows, r.Protocol, r.First, r.Last)
			}
		}
		switch {
		case r.Protocol == 0 && (all || r.Last == 0):
			rest = verdict
		case r.Protocol == 0:
			return fmt.Errorf("%w: ports %d to %d of no protocol", ErrRows, r.First, r.Last)
		case all:
			s.Add(protocols, nft.Element{Key: key + word(r.Protocol), Value: verdict})
		case r.Protocol == unix.IPPROTO_ICMP && isType(r):
			s.Add(icmp4Types, nft.Element{Key: key + word(uint8(r.First)), Value: verdict})
		case r.Protocol == unix.IPPROTO_ICMPV6 && isType(r):
			s.Add(icmp6Types, nft.Element{Key: key + word(uint8(r.First)), Value: verdict})
		case r.First > r.Last || !hasPorts(r.Protocol):
			return fmt.Errorf("%w: ports %d to %d of protocol %d", ErrRows, r.First, r.Last, r.Protocol)
		case r.First == r.Last:
			s.Add(ports, nft.Element{Key: key + word(r.Protocol) + port(r.First), Value: verdict})
		default:
			key := key + word(r.Protocol)
			s.Add(portRanges, nft.Element{Key: key + port(r.First), End: key + port(r.Last), Value: verdict})
		}
	}
	s.Add(others, nft.Element{Key: key, Value: rest})
	return nil
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
func number(n uint32) string     { return string(binary.NativeEndian.AppendUint32(nil, n)) }
func keyOf(link int) string      { return number(uint32(link)) }
func word(protocol uint8) string { return string([]byte{protocol, 0, 0, 0}) }
func port(number uint16) string  { return string([]byte{byte(number >> 8), byte(number), 0, 0}) }
