package datapath

import (
	"net/netip"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpointmanager"
)

// owners says what belongs to an endpoint that is there, or was a moment ago.
type owners struct {
	names map[string]bool
	addrs map[netip.Addr]bool
	ids   map[uint32]bool
	wired wired // by the index of the link
}

func ownersOf(lists ...[]endpointmanager.Endpoint) owners {
	o := owners{map[string]bool{}, map[netip.Addr]bool{}, map[uint32]bool{abi.NoEndpoint: true}, wired{}}
	for _, list := range lists {
		for _, ep := range list {
			o.names[ep.Host.Name], o.ids[uint32(ep.ID)] = true, true
			addrs := ep.Addresses.List()
			for _, addr := range addrs {
				o.addrs[addr] = true
			}
			index := ep.Host.Index
			o.wired[index] = append(o.wired[index], addrs...)
		}
	}
	return o
}

// andOf adds the names of the links that the plugin has made for endpoints that are not there yet.
func (o owners) andOf(coming []endpointmanager.Attachment) owners {
	for _, a := range coming {
		o.names[v1.HostInterfaceName(a.ContainerID, a.IfName)] = true
	}
	return o
}

func (o owners) hasLink(index int, name string) bool {
	_, ok := o.wired[index]
	return ok || o.names[name]
}

func (o owners) hasIndex(index uint32) bool {
	_, ok := o.wired[int(index)]
	return ok
}
