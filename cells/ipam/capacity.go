package ipam

import (
	"errors"
	"io/fs"
	"os"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/ipam/allocator"
)

// CapacitySource tells how many addresses are left: a capacity.Source.
type CapacitySource struct {
	allocator *allocator.Allocator
	noIPv6    error // every ADD with an IPv6 address fails for it
}

// NewCapacitySource returns the source of an allocator.
func NewCapacitySource(a *allocator.Allocator) CapacitySource {
	return CapacitySource{a, checkIPv6("/proc/net/if_inet6")}
}

// checkIPv6 returns an error for a kernel without IPv6, which lacks the file (include/net/if_inet6.h,
// net/ipv6/addrconf.c).
func checkIPv6(file string) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return errors.New("the kernel has no IPv6 (ipv6.disable=1?): start it with IPv6, or give this node no IPv6 range")
	}
	return nil
}

// Resources implements capacity.Source: one for each pool and family, as an ADD needs one of each. An address that
// rests is not there for the next ADD, and no more is what is free of a drained prefix.
func (c CapacitySource) Resources() (resources []capacity.Resource) {
	for _, pool := range c.allocator.Usage().Pools {
		byFamily := map[string]*capacity.Resource{}
		for _, block := range pool.Blocks {
			if block.Drained {
				continue
			}
			family, err := "ipv6", c.noIPv6
			if block.Prefix.Addr().Is4() {
				family, err = "ipv4", nil
			}
			if byFamily[family] == nil {
				byFamily[family] = &capacity.Resource{Name: capacity.Addresses(pool.Name, family), Reserve: 1, Err: err, Vital: err != nil}
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
