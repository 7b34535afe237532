package datapath

import (
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/capacity"
)

// room tells how many endpoints the maps have room for. It is a capacity.Source.
type room struct{ datapath *Datapath }

func newRoom(d *Datapath) room { return room{d} }

// Resources implements capacity.Source. Every endpoint has one entry by its link, and the maps have the same room for
// what else it has.
func (r room) Resources() []capacity.Resource {
	most := int64(r.datapath.loader.cfg.MaxEndpoints)
	out := capacity.Resource{Name: "datapath-maps", Capacity: most, Reserve: max(1, most/100)}
	out.Err = r.datapath.maps.use(func(m *pinnedMaps) error {
		return eachEntry(m.links, func(uint32, []abi.Link) { out.Used++ })
	})
	return []capacity.Resource{out}
}
