package ipam

import (
	"porin.dev/porin/cells/capacity"
)

// Room tells how many addresses are left: a capacity.Source.
type Room struct{ allocator Allocator }

// NewRoom returns the source of an allocator.
func NewRoom(a Allocator) Room { return Room{a} }

// Resources implements capacity.Source: one for each pool and family, as an ADD needs one of each. An address that rests
// is not there for the next ADD, and no more is what is free of a drained prefix.
func (r Room) Resources() (resources []capacity.Resource) {
	for _, pool := range r.allocator.Usage().Pools {
		byFamily := map[string]*capacity.Resource{}
		for _, one := range pool.Ranges {
			if one.Drained {
				continue
			}
			family := "ipv6"
			if one.Prefix.Addr().Is4() {
				family = "ipv4"
			}
			if byFamily[family] == nil {
				byFamily[family] = &capacity.Resource{Name: "addresses/" + pool.Name + "/" + family, Reserve: 1}
			}
			byFamily[family].Used += one.Used + one.Quarantined
			byFamily[family].Capacity += one.Capacity
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			if resource := byFamily[family]; resource != nil {
				resources = append(resources, *resource)
			}
		}
	}
	return resources
}
