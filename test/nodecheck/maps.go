package nodecheck

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

// mapsDue are the entries of the endpoints, and the node's own counters.
func (a answers) mapsDue() []Item {
	items := []Item{dropsEntry(abi.NoEndpoint)}
	for _, ep := range a.endpoints {
		index := uint32(ep.Host.Index)
		items = append(items, dropsEntry(uint32(ep.ID)), linkEntry(index, ep.ID, ep.Addresses.IPv4, ep.Addresses.IPv6))
		for _, addr := range addresses(ep) {
			items = append(items, endpointEntry(addr, index, ep.ID))
		}
	}
	return items
}

func endpointEntry(addr netip.Addr, index uint32, id uint16) Item {
	return Item{"entry of map " + bpf.Endpoints, fmt.Sprintf("%s: link %d, endpoint %d", addr, index, id)}
}

func linkEntry(index uint32, id uint16, v4, v6 netip.Addr) Item {
	return Item{"entry of map " + bpf.Links, fmt.Sprintf("link %d: endpoint %d, %s %s", index, id, v4, v6)}
}

func dropsEntry(id uint32) Item {
	return Item{"entry of map " + bpf.Drops, fmt.Sprintf("endpoint %d", id)}
}

// mapItems are the entries in the kernel.
func (c *Checker) mapItems() (items []Item, err error) {
	dir := filepath.Join(c.node.BPFRoot, "maps")
	err1 := eachEntry(filepath.Join(dir, bpf.Endpoints), func(addr abi.Addr, e abi.Endpoint) {
		items = append(items, endpointEntry(addr.IP(), e.Ifindex, e.Id))
	})
	err2 := eachEntry(filepath.Join(dir, bpf.Links), func(index uint32, l abi.Link) {
		items = append(items, linkEntry(index, l.Id, abi.Addr(l.Ipv4).IP(), abi.Addr(l.Ipv6).IP()))
	})
	err3 := eachEntry(filepath.Join(dir, bpf.Drops), func(id uint32, _ []abi.Drops) {
		items = append(items, dropsEntry(id))
	})
	return items, errors.Join(err1, err2, err3)
}

// eachEntry visits what is in a pinned map. A deletion meanwhile can make it visit an entry twice, or end with an error.
func eachEntry[K, V any](pin string, visit func(K, V)) error {
	m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer m.Close()
	var (
		key   K
		value V
	)
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		visit(key, value)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", pin, err)
	}
	return nil
}
