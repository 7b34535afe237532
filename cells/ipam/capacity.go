package ipam

import (
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/ipam/allocator"
)

// CapacitySource tells how many addresses are left: a capacity.Source.
type CapacitySource struct{ allocator *allocator.Allocator }

// NewCapacitySource returns the source of an allocator.
func NewCapacitySource(a *allocator.Allocator) CapacitySource { return CapacitySource{a} }

// Resources implements capacity.Source: one for each pool and family, as an ADD needs one of each. An address that rests
// is not there for the next ADD, and no more is what is free of a drained prefix.
func (c CapacitySource) Resources() (resources []capacity.Resource) {
	for _, pool := range c.allocator.Usage().Pools {
		byFamily := map[string]*capacity.Resource{}
		for _, block := range pool.Blocks {
			if block.Drained {
				continue
			}
			family := "ipv6"
			if block.Prefix.Addr().Is4() {
				family = "ipv4"
			}
			if byFamily[family] == nil {
				byFamily[family] = &capacity.Resource{Name: capacity.Addresses(pool.Name, family), Reserve: 1}
			}
			byFamily[family].Used += block.Used
			byFamily[family].Quarantined += block.Resting
			byFamily[family].Capacity += block.Capacity
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			if resource := byFamily[family]; resource != nil {
				resources = append(resources, *resource)
			}
		}
	}
	return resources
}
