package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
)

func (k *kernelMaps) Prune(live []Entry) (removed int, err error) {
	err = k.use(func(m *pinnedMaps) error {
		removed, err = m.prune(live)
		return err
	})
	return removed, err
}

func (m *pinnedMaps) prune(live []Entry) (removed int, err error) {
	links, owners, ids := map[uint32]bool{}, map[abi.Addr]uint32{}, map[uint32]bool{abi.NoEndpoint: true}
	for _, e := range live {
		links[uint32(e.Link)], ids[uint32(e.ID)] = true, true
		for _, addr := range e.Addresses.List() {
			owners[abi.AddrOf(addr)] = uint32(e.Link)
		}
	}
	// By address first: the order of kernelMaps.
	n, err := pruneMap(m.endpoints, func(addr abi.Addr, e abi.Endpoint) bool { return owners[addr] == e.Ifindex })
	removed += n
	if err == nil {
		n, err = pruneMap(m.links, func(index uint32, _ abi.Link) bool { return links[index] })
		removed += n
	}
	if err == nil {
		n, err = pruneMap(m.traffic, func(id uint32, _ []abi.Traffic) bool { return ids[id] })
		removed += n
	}
	return removed, err
}

// pruneMap deletes what keep does not want. It collects first, as deleting while iterating starts the iteration over.
func pruneMap[K comparable, V any](m *ebpf.Map, keep func(K, V) bool) (removed int, err error) {
	var (
		key   K
		value V
		stale []K
	)
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		if !keep(key, value) {
			stale = append(stale, key)
		}
	}
	if err := entries.Err(); err != nil {
		return 0, fmt.Errorf("iterate over map %s: %w", m, err)
	}
	for _, key := range stale {
		if err := gone(m.Delete(key)); err != nil {
			return removed, fmt.Errorf("delete from map %s: %w", m, err)
		}
		removed++
	}
	return removed, nil
}
