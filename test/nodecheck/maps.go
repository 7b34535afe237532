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

// policiesDue are the classes of the endpoints' addresses, and which endpoints are restricted.
func (a answers) policiesDue() (items []Item) {
	for _, ep := range a.endpoints {
		for _, addr := range addresses(ep) {
			items = append(items, classEntry(addr))
		}
		if p := ep.Policy; p != nil && (p.Egress || p.Ingress) {
			items = append(items, policyEntry(uint32(ep.ID), p.Egress, p.Ingress))
		}
	}
	return items
}

func classEntry(addr netip.Addr) Item { return Item{"entry of map " + bpf.Addresses, addr.String()} }

func policyEntry(id uint32, egress, ingress bool) Item {
	return Item{"entry of map " + bpf.Policies, fmt.Sprintf("endpoint %d: egress %t, ingress %t restricted", id, egress, ingress)}
}

// policyItems are the items of the active policy. The doctor knows the entries of the node's own addresses, of
// policies' ranges, and of the other copy.
func (c *Checker) policyItems(want Want) (items []Item, err error) {
	dir := filepath.Join(c.node.BPFRoot, "maps")
	var active uint32
	err1 := eachEntry(filepath.Join(dir, bpf.ActiveCopy), func(_, number uint32) { active = number % abi.PolicyCopies })
	err2 := eachEntry(filepath.Join(dir, bpf.Addresses), func(k abi.AddressKey, class uint32) {
		if k.Copy == active && class&abi.ClassHost == 0 {
			items = append(items, classEntry(k.Addr.IP()))
		}
	})
	err3 := eachEntry(filepath.Join(dir, bpf.Prefixes), func(k abi.PrefixKey, class uint32) {
		if cidr := rangeOf(k); k.Copy == active && class&abi.ClassUnmanaged != 0 && !want.hasBlockAround(cidr) {
			items = append(items, unmanagedEntry(cidr))
		}
	})
	err4 := eachInBatches(filepath.Join(dir, bpf.Policies), func(id uint32, p abi.Policy) {
		if p.Egress[active] != 0 || p.Ingress[active] != 0 {
			items = append(items, policyEntry(id, p.Egress[active] != 0, p.Ingress[active] != 0))
		}
	})
	return items, errors.Join(err1, err2, err3, err4)
}

// eachEntry visits what is in a pinned map. A deletion meanwhile can make it visit an entry twice, or end with an
// error.
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

// eachInBatches is eachEntry for an array with an entry for every endpoint that there may be.
func eachInBatches[K, V any](pin string, visit func(K, V)) error {
	const size = 1 << 14
	m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer m.Close()
	keys, values := make([]K, size), make([]V, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			visit(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read map %s: %w", pin, err)
		}
	}
}
