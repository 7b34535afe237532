package allocator

import (
	"maps"
	"net/netip"
	"slices"
)

// Usage is what the node's pools have, and who has addresses.
type Usage struct {
	Pools       []PoolUsage // by name
	Allocations []Allocation
}

// PoolUsage is one pool.
type PoolUsage struct {
	Name   string
	Blocks []Block
}

// Usage shows pools and allocations, these in no order.
func (a *Allocator) Usage() Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	usage := Usage{Allocations: a.owners.list()}
	for _, name := range slices.Sorted(maps.Keys(a.pools)) {
		pool := PoolUsage{Name: name}
		for _, b := range a.pools[name].blocks() {
			shown := b.shown()
			shown.NodeAddresses = a.nodeAddressesIn(b)
			pool.Blocks = append(pool.Blocks, shown)
		}
		usage.Pools = append(usage.Pools, pool)
	}
	return usage
}

// nodeAddressesIn are the addresses of the node itself that a block would give out.
func (a *Allocator) nodeAddressesIn(b *block) (addrs []netip.Addr) {
	for addr := range a.nodeAddresses {
		if b.gives(addr) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// ShownOwner is the owner as people and the API know it. Who reserves has a name of its own choice, though it looks like a handle.
func (a Allocation) ShownOwner() string {
	if a.Reserved {
		return string(a.Owner)
	}
	return a.Owner.String()
}
