package policymap

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
)

// Maps are the maps of bpf/lib/policy.h.
type Maps struct {
	Policies, ActiveCopy, Addresses, Prefixes, Tables, Rows *ebpf.Map
}

// ErrNoRoom is returned for a policy that does not fit. The one before stays in force.
var ErrNoRoom = errors.New("no room in the maps of policies")

// room is how many entries one copy may have.
func room(m *ebpf.Map) int { return int(m.MaxEntries() / abi.PolicyCopies) }

// noRoom adds [ErrNoRoom] to the kernel's errors that mean it.
func noRoom(err error) error {
	if errors.Is(err, syscall.E2BIG) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return err
}

// eachEntry calls f for all entries.
func eachEntry[K, V any](m *ebpf.Map, f func(K, V) error) error {
	const chunk = 4096
	keys, values := make([]K, chunk), make([]V, chunk)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if err := f(keys[i], values[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read map %s: %w", m, err)
		}
	}
}

// clearCopy removes all entries of a copy.
func clearCopy(m Maps, number uint32) error {
	ofCopy := func(n uint32) bool { return n%abi.PolicyCopies == number }
	return errors.Join(
		clearMap(m.Addresses, func(k abi.AddressKey) bool { return k.Copy == number }),
		clearMap(m.Prefixes, func(k abi.PrefixKey) bool { return k.Copy == number }),
		clearMap(m.Tables, func(k abi.TableKey) bool { return ofCopy(k.Table) }),
		clearMap(m.Rows, func(k abi.RowKey) bool { return ofCopy(k.Rows) }),
	)
}

// clearMap removes the keys that f reports.
func clearMap[K any](m *ebpf.Map, f func(K) bool) error {
	var remove []K
	err := eachEntry(m, func(key K, _ uint32) error {
		if f(key) {
			remove = append(remove, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range remove {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove from map %s: %w", m, err)
		}
	}
	return nil
}

// activate makes a copy the active one.
func (m Maps) activate(copyNumber uint32) error {
	if err := m.ActiveCopy.Put(uint32(0), copyNumber); err != nil {
		return fmt.Errorf("activate a copy of the policy: %w", err)
	}
	return nil
}
