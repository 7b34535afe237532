package policymap

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
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

// policyCopy is one of the copies of the policy. Each of its parts writes its maps, and knows what it has written.
type policyCopy struct {
	number    uint32     // 0 or 1
	addresses *addresses // the maps addresses and prefixes
	rowSets   *rowSets   // the map rows
	tables    *tables    // the map tables
	endpoints *endpoints // the map policies
}

func newPolicyCopy(m Maps, number uint32) *policyCopy {
	everywhere := map[engine.ClassID]int{engine.FixedClass(model.World): 1} // of all addresses that the maps do not have
	sets := &rowSets{m: m.Rows, copyNumber: number, byContent: map[string]*rowSet{}}
	tables := &tables{m: m.Tables, copyNumber: number, rowSets: sets, byID: map[engine.TableID]*table{}}
	return &policyCopy{
		number: number, addresses: &addresses{maps: m, copyNumber: number, members: everywhere}, rowSets: sets, tables: tables,
		endpoints: &endpoints{
			maps: m, copyNumber: number, tables: tables, byKey: map[string]endpoint{}, unknown: map[uint16]bool{}, ingress: noTable,
		},
	}
}

// numbered returns the number in the maps for n, which is at least 1. The two copies never use the same number, and
// neither uses 0 or 1.
func numbered(n, copyNumber uint32) uint32 { return n*abi.PolicyCopies + copyNumber }

// write writes everything into an empty copy.
func (c *policyCopy) write(e *engine.Engine, ids map[string]uint16) error {
	for _, view := range viewsOf(e, ids) {
		if err := c.tables.add(view); err != nil {
			return err
		}
	}
	for addr, class := range e.Addresses() {
		if err := c.addresses.set(e, addr, 0, class); err != nil {
			return err
		}
	}
	if err := c.addresses.setPrefix(e, allIPv4, engine.FixedClass(model.World)); err != nil {
		return err
	}
	for cidr, class := range e.Prefixes() {
		if err := c.addresses.setPrefix(e, cidr, class); err != nil {
			return err
		}
	}
	for key, id := range ids {
		if err := c.endpoints.set(e, key, id); err != nil {
			return err
		}
	}
	return nil
}
