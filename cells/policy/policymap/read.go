package policymap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/bpfarray"
)

// The functions of this file look up what the programs do, in the same way: bpf/lib/policy.h has similar names.

// Egress returns the value of the row that decides about a connection of the endpoint with this ID to an address:
// [engine.ValueDeny], [engine.ValueAllow], or the number of layer 7 rules.
func (m Maps) Egress(id uint16, to netip.Addr, protocol model.Protocol, port uint16) (uint32, error) {
	return m.readConsistent(id, to, func(s state) (uint32, error) {
		if s.policy.Egress[s.copyNumber] == 0 {
			return engine.ValueAllow, nil
		}
		return m.value(s.policy.Egress[s.copyNumber], s.class, protocol, port)
	})
}

// Ingress is [Maps.Egress] for a connection of an address to the endpoint with this ID. Of a connection from an address
// of this node, fromNode says that the node has not forwarded it.
func (m Maps) Ingress(id uint16, from netip.Addr, fromNode bool, protocol model.Protocol, port uint16) (uint32, error) {
	return m.readConsistent(id, from, func(s state) (uint32, error) {
		if s.policy.Ingress[s.copyNumber] == 0 {
			return engine.ValueAllow, nil
		}
		class := s.class
		if class&abi.ClassHost != 0 && !fromNode {
			class = abi.ClassWorld
		}
		return m.value(s.policy.Ingress[s.copyNumber], class, protocol, port)
	})
}

// maxReads is how often a verdict is read: a change takes longer than one.
const maxReads = 100

// state has the map entries, other than tables and rows, that a verdict depends on. The writer changes one of them
// before it removes tables and rows that it has replaced.
type state struct {
	copyNumber uint32
	policy     abi.Policy
	class      uint32 // of the peer
}

// readConsistent calls read with the state of an endpoint and a peer, and repeats it if the state has changed
// meanwhile: the writer waits for BPF programs before it removes replaced entries, but not for this process.
func (m Maps) readConsistent(id uint16, peer netip.Addr, read func(state) (uint32, error)) (value uint32, err error) {
	now, err := m.readState(id, peer)
	if err != nil {
		return engine.ValueDeny, err
	}
	for range maxReads {
		before := now
		value, err = read(before)
		var stateErr error
		if now, stateErr = m.readState(id, peer); stateErr != nil || now == before {
			return value, errors.Join(err, stateErr)
		}
	}
	return value, err
}

func (m Maps) readState(id uint16, peer netip.Addr) (s state, err error) {
	if s.copyNumber, err = m.activeCopy(); err != nil {
		return s, err
	}
	if s.policy, err = m.readPolicy(id); err != nil {
		return s, err
	}
	class, found, err := lookup(m.Addresses, addressKey(peer, s.copyNumber))
	if err == nil && !found {
		class, found, err = lookup(m.Prefixes, prefixKey(netip.PrefixFrom(peer, peer.BitLen()), s.copyNumber))
	}
	if s.class = class; err == nil && !found {
		s.class = abi.ClassWorld
	}
	return s, err
}

// activeCopy returns the number of the active copy, bit 0 of the map active_copy. Earlier versions have written other
// bits, too.
func (m Maps) activeCopy() (number uint32, err error) {
	if number, err = bpfarray.Read[uint32](m.ActiveCopy, 0); err != nil {
		err = fmt.Errorf("read which copy of the policy is active: %w", err)
	}
	return number % abi.PolicyCopies, err
}

func (m Maps) readPolicy(id uint16) (p abi.Policy, err error) {
	if p, err = bpfarray.Read[abi.Policy](m.Policies, uint32(id)); err != nil {
		err = fmt.Errorf("read the policy of endpoint %d: %w", id, err)
	}
	return p, err
}

// value is the one of the row. A missing one denies.
func (m Maps) value(table, class uint32, protocol model.Protocol, port uint16) (uint32, error) {
	key := abi.TableKey{Table: table, Class: class &^ abi.ClassBits}
	set, found, err := lookup(m.Tables, key)
	if err == nil && !found {
		key.Class = uint32(anyClass)
		set, found, err = lookup(m.Tables, key)
	}
	switch {
	case err != nil || !found || set == abi.RowsDeny:
		return engine.ValueDeny, err
	case set == abi.RowsAllow:
		return engine.ValueAllow, nil
	}
	if protocol.IsICMP() {
		port = 1 // the identifier of a ping: any but 0
	}
	row := abi.RowKey{Bits: bitsProtocol + 16, Rows: set, Protocol: uint8(protocol)}
	binary.BigEndian.PutUint16(row.Port[:], port)
	value, _, err := lookup(m.Rows, row)
	return value, err
}

// Layer7 returns the numbers of layer 7 rules that rows have, those rows included that nothing points to any more, but
// a program may be about to read.
func (m Maps) Layer7() (map[uint32]bool, error) {
	numbers := map[uint32]bool{}
	err := eachEntry(m.Rows, func(_ abi.RowKey, value uint32) error {
		if value > engine.ValueAllow {
			numbers[value] = true
		}
		return nil
	})
	return numbers, err
}

func lookup[K any](m *ebpf.Map, key K) (value uint32, found bool, err error) {
	switch err = m.Lookup(key, &value); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read map %s: %w", m, err)
	}
	return value, true, nil
}
