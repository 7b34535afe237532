package datapath

import (
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/capacity"
)

// CapacitySource tells how many endpoints fit into the maps. It is a capacity.Source.
type CapacitySource struct{ datapath *Datapath }

// NewCapacitySource returns the source of a datapath.
func NewCapacitySource(d *Datapath) CapacitySource { return CapacitySource{d} }

// Resources implements capacity.Source. Every endpoint has one entry by its link, and the maps are as large for what
// else it has.
func (s CapacitySource) Resources() []capacity.Resource {
	most := int64(s.datapath.cfg.MaxEndpoints)
	out := capacity.Resource{Name: "datapath-maps", Capacity: most, Reserve: max(1, most/100)}
	out.Err = s.datapath.maps.use(func(m *bpfMaps) error {
		return eachEntry(m.Links, func(uint32, []abi.Link) { out.Used++ })
	})
	return []capacity.Resource{out}
}
