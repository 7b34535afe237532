package allocator

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
	a.lock()
	defer a.mu.Unlock()
	return Usage{Pools: a.core.pools.usage(), Allocations: a.core.owners.list()}
}

// ShownOwner is the owner as people and the API know it. Who reserves has a name of its own choice, though it looks
// like a handle.
func (a Allocation) ShownOwner() string {
	if a.Reserved {
		return string(a.Owner)
	}
	return a.Owner.String()
}
