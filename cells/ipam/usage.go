package ipam

import (
	"maps"
	"slices"

	v1 "porin.dev/porin/api/v1"
)

// Usage implements [Allocator].
func (a *allocator) Usage() v1.IPAM {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	usage := v1.IPAM{Mode: a.mode, Pools: []v1.Pool{}, Allocations: []v1.Allocation{}}
	for _, name := range slices.Sorted(maps.Keys(a.pools)) {
		usage.Pools = append(usage.Pools, a.pools[name].status())
	}
	for addr, r := range a.addresses {
		usage.Allocations = append(usage.Allocations, v1.Allocation{
			Address: addr, Pool: r.Pool, Owner: r.shown(), Since: r.Since.UTC(), Expires: r.Expires.UTC(),
		})
	}
	slices.SortFunc(usage.Allocations, func(x, y v1.Allocation) int { return x.Address.Compare(y.Address) })
	return usage
}

// shown is the owner as the API names it. Who reserves has a name of its own choice, though it looks like a handle.
func (r *record) shown() string {
	if r.token != "" {
		return string(r.Owner)
	}
	return r.Owner.String()
}
