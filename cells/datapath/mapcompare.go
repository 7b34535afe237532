package datapath

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/reconcile"
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
		add(&Difference{Kind: mapEntryMissing, Subject: entryName(bpf.Drops, strconv.Itoa(int(e.ID))), Detail: reconcile.Missing}, nil)
	}
	add(nil, gone(lookupErr))
	if m.generation(e.ID) == 0 {
		add(&Difference{Kind: mapEntryMissing, Subject: entryName(bpf.Slots, strconv.Itoa(int(e.ID))), Detail: reconcile.Missing}, nil)
	}
	return differences, err
}

func compareEntry[K, V comparable](m *ebpf.Map, key K, want V, subject string) (*Difference, error) {
	var found V
	err := m.Lookup(key, &found)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return &Difference{Kind: mapEntryMissing, Subject: subject, Detail: reconcile.Missing}, nil
	case err != nil || found == want:
		return nil, err
	}
	return &Difference{Kind: mapEntryDiffers, Subject: subject, Detail: entryText(found) + " instead of " + entryText(want)}, nil
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

// Orphans finds the entries of links, addresses and numbers that no endpoint has. An entry that leads an endpoint's
// address to another link is a difference of the endpoint. By address comes first: the order of kernelMaps.
func (k *kernelMaps) Orphans(owners func() []Entry) (orphans []Orphan, err error) {
	all, err := k.list()
	d := DesiredOf(owners())
	for addr, value := range all.byAddress {
		owned := func(d Desired) bool { return d.HasAddress(addr.IP()) }
		if !owned(d) {
			remove := func(m *bpfMaps) error { return deleteSame(m.Endpoints, addr, value) }
			orphans = append(orphans, k.orphan(bpf.Endpoints, addr.IP().String(), value, owned, remove))
		}
	}
	for index, value := range all.byLink {
		owned := func(d Desired) bool { return d.HasLink(int(index)) }
		if !owned(d) {
			remove := func(m *bpfMaps) error {
				return errors.Join(deleteSame(m.Links, index, value), m.raiseGeneration(value.Id)) // its connections end, too
			}
			orphans = append(orphans, k.orphan(bpf.Links, strconv.Itoa(int(index)), value, owned, remove))
		}
	}
	for id, value := range all.counters {
		owned := func(d Desired) bool { return d.HasID(id) }
		if !owned(d) {
			remove := func(m *bpfMaps) error { return gone(m.Drops.Delete(id)) }
			orphans = append(orphans, k.orphan(bpf.Drops, strconv.Itoa(int(id)), value, owned, remove))
		}
	}
	return orphans, err
}

func (k *kernelMaps) orphan(
	name, key string, value any, owned func(Desired) bool, remove func(*bpfMaps) error,
) Orphan {
	subject := entryName(name, key)
	detail := fmt.Sprintf("%s: %s, and there is no such endpoint", subject, entryText(value))
	return Orphan{
		Difference: Difference{Kind: mapEntryOrphan, Subject: subject, Detail: detail},
		Remove: func(owners func() []Entry) error {
			updates := k.updates.Load() // before the look: an endpoint that comes after it is noticed
			if owned(DesiredOf(owners())) {
				return nil
			}
			return k.unlessUpdated(updates, remove)
		},
	}
}
