package datapath

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
)

func (k *kernelMaps) Compare(e Entry) (differences []Difference, err error) {
	err = k.use(func(m *bpfMaps) error {
		differences, err = m.compare(e)
		return err
	})
	return differences, err
}

// compare looks up what put writes.
func (m *bpfMaps) compare(e Entry) (differences []Difference, err error) {
	add := func(d *Difference, lookupErr error) {
		if d != nil {
			differences = append(differences, *d)
		}
		err = errors.Join(err, lookupErr)
	}
	add(compareEntry(m.Links, uint32(e.Link), linkValue(e), entryName(bpf.Links, strconv.Itoa(e.Link))))
	for _, addr := range e.Addresses.List() {
		add(compareEntry(m.Endpoints, abi.AddrOf(addr), endpointValue(e), entryName(bpf.Endpoints, addr.String())))
	}
	var drops []abi.Drops
	lookupErr := m.Drops.Lookup(uint32(e.ID), &drops)
	if errors.Is(lookupErr, ebpf.ErrKeyNotExist) {
		add(&Difference{mapEntryMissing, entryName(bpf.Drops, strconv.Itoa(int(e.ID))), missing}, nil)
	}
	add(nil, gone(lookupErr))
	if m.generation(e.ID) == 0 {
		add(&Difference{mapEntryMissing, entryName(bpf.Slots, strconv.Itoa(int(e.ID))), missing}, nil)
	}
	return differences, err
}

func compareEntry[K, V comparable](m *ebpf.Map, key K, want V, subject string) (*Difference, error) {
	var found V
	err := m.Lookup(key, &found)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return &Difference{mapEntryMissing, subject, missing}, nil
	case err != nil || found == want:
		return nil, err
	}
	return &Difference{mapEntryDiffers, subject, entryText(found) + " instead of " + entryText(want)}, nil
}

// entryName names an entry for people.
func entryName(name, key string) string { return "map entry " + name + " " + key }

// entryText is the value of an entry for people.
func entryText(value any) string {
	switch v := value.(type) {
	case abi.Link:
		return fmt.Sprintf("endpoint %d with %v, MAC %s", v.Id, addressesOf(v).List(), endpoint.MAC(v.PodMac.Byte))
	case abi.Endpoint:
		return fmt.Sprintf("endpoint %d on link %d, MACs %s and %s, flags %d",
			v.Id, v.Ifindex, endpoint.MAC(v.PodMac.Byte), endpoint.MAC(v.HostMac.Byte), v.Flags)
	}
	return "counters"
}

// Stale finds the entries of links, addresses and numbers that no endpoint has. An entry that leads an endpoint's address to
// another link is a difference of the endpoint. By address comes first: the order of kernelMaps.
func (k *kernelMaps) Stale(want Want) (stale []Stale, err error) {
	all, err := k.list()
	d := want()
	for addr, value := range all.byAddress {
		owned := func(d Desired) bool { return d.HasAddress(addr.IP()) }
		if !owned(d) {
			remove := func(m *bpfMaps) error { return deleteSame(m.Endpoints, addr, value) }
			stale = append(stale, k.stale(bpf.Endpoints, addr.IP().String(), value, owned, remove))
		}
	}
	for index, value := range all.byLink {
		owned := func(d Desired) bool { return d.HasLink(int(index)) }
		if !owned(d) {
			remove := func(m *bpfMaps) error {
				return errors.Join(deleteSame(m.Links, index, value), m.raiseGeneration(value.Id)) // its connections end, too
			}
			stale = append(stale, k.stale(bpf.Links, strconv.Itoa(int(index)), value, owned, remove))
		}
	}
	for id, value := range all.counters {
		owned := func(d Desired) bool { return d.HasID(id) }
		if !owned(d) {
			remove := func(m *bpfMaps) error { return gone(m.Drops.Delete(id)) }
			stale = append(stale, k.stale(bpf.Drops, strconv.Itoa(int(id)), value, owned, remove))
		}
	}
	return stale, err
}

func (k *kernelMaps) stale(name, key string, value any, owned func(Desired) bool, remove func(*bpfMaps) error) Stale {
	subject := entryName(name, key)
	return Stale{
		Difference{mapEntryOrphan, subject, fmt.Sprintf("%s: %s, and there is no such endpoint", subject, entryText(value))},
		func(want Want) error {
			updates := k.updates.Load() // before the look: an endpoint that comes after it is noticed
			if owned(want()) {
				return nil
			}
			return k.unlessUpdated(updates, remove)
		},
	}
}
