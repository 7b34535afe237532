package datapath

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpointmanager"
)

// describer adds an endpoint's counters to its description.
type describer struct{ maps Maps }

func newDescriber(maps Maps) *describer { return &describer{maps: maps} }

// Describe leaves the counters out when there are none: the endpoint is coming or going.
func (d *describer) Describe(ep endpointmanager.Endpoint, description *v1.Endpoint) {
	counted, err := d.maps.Traffic(ep.ID)
	if err != nil {
		return
	}
	description.Traffic = &v1.Traffic{
		FromPod: counter(counted.FromPod),
		ToPod:   counter(counted.ToPod),
		Drops:   drops(counted),
	}
}

func counter(c abi.Counter) v1.Counter { return v1.Counter{Packets: c.Packets, Bytes: c.Bytes} }

func drops(counted abi.Traffic) map[string]uint64 {
	byReason := map[string]uint64{}
	for reason, n := range counted.Drops {
		if n > 0 {
			byReason[abi.DropReason(reason).String()] = n
		}
	}
	return byReason
}
