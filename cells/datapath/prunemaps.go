package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

func (k *kernelMaps) Prune(live []Entry) (removed []string, err error) {
	err = k.use(func(m *pinnedMaps) error {
		removed, err = m.prune(live)
		return err
	})
	return removed, err
}

func (m *pinnedMaps) prune(live []Entry) (removed []string, err error) {
	links, owners, ids := map[uint32]bool{}, map[abi.Addr]uint32{}, map[uint32]bool{abi.NoEndpoint: true}
	for _, e := range live {
		links[uint32(e.Link)], ids[uint32(e.ID)] = true, true
		for _, addr := range e.Addresses.List() {
			owners[abi.AddrOf(addr)] = uint32(e.Link)
		}
	}
	// By address first: the order of kernelMaps.
	addrs, err := pruneMap(m.endpoints, func(addr abi.Addr, e abi.Endpoint) bool { return owners[addr] == e.Ifindex })
	removed = append(removed, entriesText(bpf.Endpoints, addrs, abi.Addr.IP)...)
	if err != nil {
		return removed, err
	}
	indexes, err := pruneMap(m.links, func(index uint32, _ abi.Link) bool { return links[index] })
	removed = append(removed, entriesText(bpf.Links, indexes, itself)...)
	if err != nil {
		return removed, err
	}
	counters, err := pruneMap(m.traffic, func(id uint32, _ abi.Traffic) bool { return ids[id] })
	return append(removed, entriesText(bpf.Traffic, counters, itself)...), err
}

func itself(key uint32) uint32 { return key }

func entriesText[K, T any](name string, keys []K, text func(K) T) (texts []string) {
	for _, key := range keys {
		texts = append(texts, entryText(name, text(key)))
	}
	return texts
}

func entryText(name string, key any) string { return fmt.Sprintf("entry of map %s: %v", name, key) }

// pruneMap deletes what keep does not want.
func pruneMap[K comparable, V any](m *ebpf.Map, keep func(K, V) bool) (removed []K, err error) {
	var stale []K
	err = eachEntry(m, func(key K, values []V) {
		if !keep(key, values[0]) {
			stale = append(stale, key)
		}
	})
	if err != nil {
		return nil, err
	}
	for i, key := range stale {
		if err := gone(m.Delete(key)); err != nil {
			return stale[:i], fmt.Errorf("delete from map %s: %w", m, err)
		}
	}
	return stale, nil
}
