package multipool

import (
	"net/netip"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
)

// addresses is the node's allocator, as the controller uses it. No method blocks.
type addresses struct {
	allocator.Pools
	allocator    *allocator.Allocator
	lowWatermark int64
}

// configure sets how addresses of the pool are given out.
func (a addresses) configure(p cluster.Pool) {
	a.Configure(p.Name, allocator.Settings{
		IPv4: p.Blocks(cluster.IPv4) > 0, IPv6: p.Blocks(cluster.IPv6) > 0, Quarantine: p.Quarantine, ReuseResting: p.ReuseResting,
		LowWatermark: a.lowWatermark, Exclude: p.Exclude, AllowedNamespaces: p.AllowedNamespaces,
	})
}

// used counts the addresses in use, reserved or in quarantine that lie in a block of the pool, whether the allocator
// has it or not.
func (a addresses) used(pool string, block netip.Prefix) (n int64) {
	for _, b := range a.Blocks(pool) {
		if b.Prefix == block {
			return b.Used + b.Resting
		}
	}
	for _, one := range a.allocator.List() {
		for _, addr := range one.Addresses.List() {
			if block.Contains(addr) {
				n++
			}
		}
	}
	return n
}

// inUse lists the addresses of endpoints and reservations. Addresses of other IPAM plugins are of no pool.
func (a addresses) inUse() (list []netip.Addr) {
	for _, one := range a.allocator.List() {
		if !one.External {
			list = append(list, one.Addresses.List()...)
		}
	}
	return list
}

// endpoints counts the endpoints with addresses.
func (a addresses) endpoints() (n int) {
	for _, one := range a.allocator.List() {
		if !one.Reserved && !one.External {
			n++
		}
	}
	return n
}

// free counts the free addresses of a pool and family, without the block but.
func (a addresses) free(pool string, f cluster.Family, but netip.Prefix) (n int64) {
	for _, b := range a.Blocks(pool) {
		if cluster.FamilyOf(b.Prefix.Addr()) == f && b.Prefix != but && !b.Drained {
			n += b.Free
		}
	}
	return n
}
