package datapath

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpointmanager"
)

// Mend makes anew what is not as Put would make it.
func (k *kernelMaps) Mend(e Entry) (replaced []string, err error) {
	err = k.use(func(m *pinnedMaps) error {
		k.puts.Add(1)
		flaws, err := m.flaws(e)
		if err == nil && len(flaws) > 0 {
			err = m.put(e)
		}
		if err != nil {
			return fmt.Errorf("mend map entries: %w", err)
		}
		replaced = describeFlaws(flaws)
		return nil
	})
	return replaced, err
}

// flaws compares what put makes with what there is.
func (m *pinnedMaps) flaws(e Entry) (flaws []flaw, err error) {
	add := func(f flaw, flawed bool, lookup error) {
		if flawed {
			flaws = append(flaws, f)
		}
		err = errors.Join(err, lookup)
	}
	add(entryFlaw(m.links, uint32(e.Link), linkValue(e), mapEntry(bpf.Links, strconv.Itoa(e.Link))))
	for _, addr := range e.Addresses.List() {
		add(entryFlaw(m.endpoints, abi.AddrOf(addr), endpointValue(e), mapEntry(bpf.Endpoints, addr.String())))
	}
	_, lookup := sumCPUs(m.traffic, uint32(e.ID))
	none := errors.Is(lookup, ebpf.ErrKeyNotExist)
	add(flaw{mapEntryMissing, mapEntry(bpf.Traffic, strconv.Itoa(int(e.ID))), missing}, none, gone(lookup))
	return flaws, err
}

func entryFlaw[K, V comparable](m *ebpf.Map, key K, want V, what string) (f flaw, flawed bool, err error) {
	var found V
	err = m.Lookup(key, &found)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return flaw{mapEntryMissing, what, missing}, true, nil
	case err != nil || found == want:
		return flaw{}, false, err
	}
	return flaw{mapEntryDiffers, what, entryValue(found) + " instead of " + entryValue(want)}, true, nil
}

// entryValue is the value of an entry for people.
func entryValue(value any) string {
	switch v := value.(type) {
	case abi.Link:
		return fmt.Sprintf("endpoint %d with %v, MAC %s", v.Id, addresses(v).List(), endpointmanager.MAC(v.PodMac.Byte))
	case abi.Endpoint:
		return fmt.Sprintf("endpoint %d on link %d, MACs %s and %s, flags %d",
			v.Id, v.Ifindex, endpointmanager.MAC(v.PodMac.Byte), endpointmanager.MAC(v.HostMac.Byte), v.Flags)
	}
	return "counters"
}

func addresses(v abi.Link) endpointmanager.Addresses {
	return endpointmanager.Addresses{IPv4: v.Ipv4.IP(), IPv6: v.Ipv6.IP()}
}

// mapEntry names an entry for people.
func mapEntry(name, key string) string { return "map entry " + name + " " + key }
