package policymap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// rowSet is a complete answer about a class: a decision for each protocol and port.
type rowSet struct {
	content string // equal for sets with equal rows
	number  uint32 // in the maps
	keys    []abi.RowKey
	refs    int
}

// Bits of a row's key that count.
const (
	bitsAllProtocols = 32
	bitsProtocol     = 40
)

// keyOf returns the key of a row, without the number of its set.
func keyOf(r engine.Row) abi.RowKey {
	k := abi.RowKey{Bits: bitsAllProtocols, Protocol: uint8(r.Protocol)}
	if r.Protocol != 0 {
		k.Bits = bitsProtocol + uint32(r.Bits)
		binary.BigEndian.PutUint16(k.Port[:], r.Port&^(0xffff>>r.Bits))
	}
	return k
}

// entry is an entry of the map rows: for one row, or for later fragments.
type entry struct {
	key   abi.RowKey
	value uint32
}

// entriesOf returns the entries of a set, without its number: one for each row, and one for later fragments of each
// protocol with ports, of ICMP if it has rows of its own, and of unknown protocols.
func entriesOf(rows []engine.Row) (entries []entry) {
	for _, r := range rows {
		entries = append(entries, entry{keyOf(r), r.Decision.Value()})
	}
	protocols := []model.Protocol{0, model.TCP, model.UDP, model.SCTP}
	for _, icmp := range []model.Protocol{model.ICMP, model.ICMPv6} {
		if slices.ContainsFunc(rows, func(r engine.Row) bool { return r.Protocol == icmp }) {
			protocols = append(protocols, icmp)
		}
	}
	for _, protocol := range protocols {
		k := abi.RowKey{Bits: bitsProtocol + 8, Protocol: abi.ProtocolFragment, Port: [2]uint8{uint8(protocol)}}
		value := engine.ValueDeny
		if allowsAny(rows, protocol) {
			value = engine.ValueAllow
		}
		entries = append(entries, entry{k, value})
	}
	return entries
}

// allowsAny reports whether the rows allow at least one port of the protocol; with 0, of any protocol.
func allowsAny(rows []engine.Row, protocol model.Protocol) bool {
	own := slices.ContainsFunc(rows, func(r engine.Row) bool { return r.Protocol == protocol && r.Bits == 0 })
	return slices.ContainsFunc(rows, func(r engine.Row) bool {
		return r.Decision.Value() != engine.ValueDeny && (protocol == 0 || r.Protocol == protocol || r.Protocol == 0 && !own)
	})
}

// rowText is the length of a row in the content of a set. Its value is in the last four bytes.
const rowText = 8

// contentOf is equal for sets of equal rows, and for sets that give one verdict about everything.
func contentOf(rows []engine.Row) string {
	if number, one := withoutRows(rows); one {
		return strconv.Itoa(int(number))
	}
	text := make([]byte, 0, rowText*(len(rows)+4))
	for _, one := range entriesOf(rows) {
		text = append(text, byte(one.key.Bits), one.key.Protocol, one.key.Port[0], one.key.Port[1])
		text = binary.BigEndian.AppendUint32(text, one.value)
	}
	return string(text)
}

// value is the one of a key of the set.
func (s *rowSet) value(i int) uint32 {
	return binary.BigEndian.Uint32([]byte(s.content[rowText*(i+1)-4 : rowText*(i+1)]))
}

// withoutRows returns the number of the set without rows that says the same: all rows deny, or all allow without layer
// 7 rules. They are complete, so they are about everything.
func withoutRows(rows []engine.Row) (number uint32, ok bool) {
	number = abi.RowsDeny
	for i, r := range rows {
		switch value := r.Decision.Value(); {
		case value > engine.ValueAllow, i > 0 && value != rows[0].Decision.Value():
			return 0, false
		case value == engine.ValueAllow:
			number = abi.RowsAllow
		}
	}
	return number, true
}

// rowSets is a copy's part of the map rows.
type rowSets struct {
	m          *ebpf.Map
	copyNumber uint32
	byContent  map[string]*rowSet
	unused     []*rowSet // may have been acquired again
	last       uint32
	rowCount   int // in all sets
}

// acquire returns the set with these rows, which stays until it is released as often. A new one is written before
// anything points to it.
func (x *rowSets) acquire(rows []engine.Row) (*rowSet, error) {
	content := contentOf(rows)
	set := x.byContent[content]
	if set == nil {
		number, one := withoutRows(rows)
		set = &rowSet{content: content, number: number}
		if !one {
			if err := x.write(set, rows); err != nil {
				return nil, err
			}
		}
		x.byContent[content] = set
	}
	set.refs++
	return set, nil
}

func (x *rowSets) write(set *rowSet, rows []engine.Row) error {
	entries := entriesOf(rows)
	if x.rowCount+len(entries) > room(x.m) {
		return fmt.Errorf("%w: more than %d rows of ports", ErrNoRoom, room(x.m))
	}
	x.last++
	set.number = numbered(x.last, x.copyNumber)
	for _, one := range entries {
		one.key.Rows = set.number
		set.keys = append(set.keys, one.key)
		x.rowCount++
		if err := x.m.Put(one.key, one.value); err != nil {
			return fmt.Errorf("write rows of the policy: %w", noRoom(err))
		}
	}
	return nil
}

// release lets go of a set, or of nil. Its rows are removed later: a program may be about to read them.
func (x *rowSets) release(set *rowSet) {
	if set == nil {
		return
	}
	if set.refs--; set.refs == 0 {
		x.unused = append(x.unused, set)
	}
}

// takeUnused returns a function that removes the rows of sets without a user, if they still have none by then.
func (x *rowSets) takeUnused() func() error {
	unused := x.unused
	x.unused = nil
	return func() error {
		for _, set := range unused {
			if set.refs > 0 || x.byContent[set.content] != set {
				continue
			}
			delete(x.byContent, set.content)
			for _, k := range set.keys {
				if err := x.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
					return fmt.Errorf("remove rows of the policy: %w", err)
				}
				x.rowCount--
			}
		}
		return nil
	}
}
