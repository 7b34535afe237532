package multipool

import (
	"net/netip"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
)

// onAllocator is the node's allocator as [Addresses].
type onAllocator struct {
	allocator *allocator.Allocator
	allocator.Pools
}

var _ Addresses = onAllocator{}

// Configure implements [Addresses].
func (a onAllocator) Configure(p cluster.Pool) {
	a.Pools.Configure(p.Name, allocator.Settings{
		IPv4: p.Blocks(cluster.IPv4) > 0, IPv6: p.Blocks(cluster.IPv6) > 0, Quarantine: p.Quarantine, ReuseResting: p.ReuseResting,
	})
}

// Usage implements [Addresses].
func (a onAllocator) Usage(pool string) (list []Usage) {
	for _, b := range a.Blocks(pool) {
		list = append(list, Usage{Block: b.Prefix, Capacity: b.Capacity, Used: b.Used, Resting: b.Resting, Drained: b.Drained})
	}
	return list
}

// Used implements [Addresses].
func (a onAllocator) Used(pool string, block netip.Prefix) int {
	for _, b := range a.Blocks(pool) {
		if b.Prefix == block {
			return int(b.Used + b.Resting)
		}
	}
	n := 0
	for _, one := range a.allocator.List() {
		for _, addr := range one.Addresses.List() {
			if block.Contains(addr) {
				n++
			}
		}
	}
	return n
}

// Wanted implements [Addresses].
func (a onAllocator) Wanted() []string { return a.Requested() }

// Endpoints implements [Addresses].
func (a onAllocator) Endpoints() (n int) {
	for _, one := range a.allocator.List() {
		if !one.Reserved && !one.External {
			n++
		}
	}
	return n
}
