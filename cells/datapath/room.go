package datapath

import (
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/capacity"
)

// Room tells how many endpoints the maps have room for. It is a capacity.Source.
type Room struct{ datapath *Datapath }

// NewRoom returns the source of a datapath.
func NewRoom(d *Datapath) Room { return Room{d} }

// Resources implements capacity.Source. Every endpoint has one entry by its link, and the maps have the same room for
// what else it has.
func (r Room) Resources() []capacity.Resource {
	most := int64(r.datapath.loader.cfg.MaxEndpoints)
	out := capacity.Resource{Name: "datapath-maps", Capacity: most, Reserve: max(1, most/100)}
	out.Err = r.datapath.maps.use(func(m *pinnedMaps) error {
		return eachEntry(m.links, func(uint32, []abi.Link) { out.Used++ })
	})
	return []capacity.Resource{out}
}
