package loader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

// copyMap makes a map of the spec's size and flags with all that m has, and leaves m as it is. Programs go on counting
// in m until their filters are replaced: their further counts are lost with it.
func copyMap(m *ebpf.Map, name string, spec *ebpf.MapSpec, pin string) (_ *ebpf.Map, err error) {
	if err := compatible(m, spec, pin); err != nil {
		return nil, err
	}
	copyTo, lossy := copyAs[name], name == bpf.Connections || name == bpf.KeyQueue // with the connections goes what counts them
	if copyTo == nil && !lossy {
		return nil, fmt.Errorf("%w: %w", ErrIncompatible, spec.Compatible(m))
	}
	copied, err := newMap(spec)
	if err != nil || lossy {
		return copied, err
	}
	if err := copyTo(m, copied); err != nil {
		copied.Close()
		return nil, err
	}
	return copied, nil
}

// copyAs has the types of each map.
var copyAs = map[string]func(from, to *ebpf.Map) error{
	bpf.Endpoints:  copyEntries[abi.Addr, abi.Endpoint](maxEndpointsFlag),
	bpf.Links:      copyLinks,
	bpf.Passed:     copyCounters[abi.Passed],
	bpf.Drops:      copyEntries[uint32, []abi.Drops](maxEndpointsFlag), // one value a CPU
	bpf.Slots:      copyArray[abi.Slot],
	bpf.Policies:   copyArray[abi.Policy],
	bpf.ActiveCopy: copyArray[uint32],
	bpf.Addresses:  copyEntries[abi.AddressKey, uint32]("--datapath-max-addresses"),
}

const maxEndpointsFlag = "--max-endpoints"

// copyCounters copies an array of one value a CPU, as far as anything is counted in it.
func copyCounters[V comparable](from, to *ebpf.Map) error {
	for id := range from.MaxEntries() {
		var values []V
		if err := from.Lookup(id, &values); err != nil {
			return fmt.Errorf("read map %s: %w", from, err)
		}
		if !slices.ContainsFunc(values, func(v V) bool { return v != *new(V) }) {
			continue
		}
		if id >= to.MaxEntries() {
			return fmt.Errorf("%w: endpoint %d is in it, and there would be room up to %d; give --max-endpoints a larger number, or drain the node",
				ErrIncompatible, id, to.MaxEntries()-1)
		}
		if err := to.Put(id, values); err != nil {
			return fmt.Errorf("copy an entry: %w", err)
		}
	}
	return nil
}

// copyArray copies the elements that both maps have: copyLinks refuses endpoints with other numbers.
func copyArray[V comparable](from, to *ebpf.Map) error {
	for id := range min(from.MaxEntries(), to.MaxEntries()) {
		var value V
		err := from.Lookup(id, &value)
		if err == nil && value != *new(V) {
			err = to.Put(id, value)
		}
		if err != nil {
			return fmt.Errorf("copy element %d of %s: %w", id, from, err)
		}
	}
	return nil
}

// copyLinks refuses numbers for which other maps would have no room.
func copyLinks(from, to *ebpf.Map) error {
	var index uint32
	var link abi.Link
	entries := from.Iterate()
	for entries.Next(&index, &link) {
		if uint32(link.Id) > to.MaxEntries() {
			return fmt.Errorf("%w: endpoint %d is in it, and there would be room up to %d; give --max-endpoints a larger number, or drain the node",
				ErrIncompatible, link.Id, to.MaxEntries())
		}
	}
	return errors.Join(entries.Err(), copyEntries[uint32, abi.Link](maxEndpointsFlag)(from, to))
}

// copyEntries expects that no agent writes meanwhile.
func copyEntries[K comparable, V any](flag string) func(from, to *ebpf.Map) error {
	return func(from, to *ebpf.Map) error {
		all := map[K]V{}
		var key K
		var value V
		entries := from.Iterate()
		for entries.Next(&key, &value) {
			all[key] = value
			value = *new(V) // a slice is not written again
		}
		if err := entries.Err(); err != nil {
			return fmt.Errorf("read map %s: %w", from, err)
		}
		if len(all) > int(to.MaxEntries()) {
			return fmt.Errorf("%w: it has %d entries, and there would be room for %d; give %s a larger number, or drain the node",
				ErrIncompatible, len(all), to.MaxEntries(), flag)
		}
		for key, value := range all {
			if err := to.Put(key, value); err != nil {
				return fmt.Errorf("copy an entry: %w", err)
			}
		}
		return nil
	}
}
