package datapathtest

import (
	"fmt"
	stdmaps "maps"
	"net/netip"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
)

// maps is [datapath.Maps] of a Kernel.
type maps struct{ kernel *Kernel }

func (m maps) Update(e datapath.Entry) error {
	unlock, err := m.kernel.lock("Maps.Update")
	defer unlock()
	if err != nil {
		return err
	}
	k := m.kernel
	k.deleteAddresses(e.Link)
	k.byLink[e.Link] = e
	if _, ok := k.traffic[e.ID]; !ok {
		k.traffic[e.ID] = abi.Traffic{}
	}
	for _, addr := range e.Addresses.List() {
		if owner, ok := k.byAddr[addr]; ok && owner != e.Link {
			return fmt.Errorf("%s: %w: link %d", addr, datapath.ErrAddressInUse, owner)
		}
		k.byAddr[addr] = e.Link
	}
	return nil
}

func (m maps) Delete(e datapath.Entry) error {
	unlock, err := m.kernel.lock("Maps.Delete")
	defer unlock()
	if err != nil {
		return err
	}
	delete(m.kernel.traffic, e.ID)
	if e.ID == uint16(abi.NoEndpoint) || m.kernel.byLink[e.Link].ID == e.ID {
		m.kernel.deleteAddresses(e.Link)
		delete(m.kernel.byLink, e.Link)
	}
	return nil
}

// deleteAddresses expects the lock.
func (k *Kernel) deleteAddresses(link int) {
	stdmaps.DeleteFunc(k.byAddr, func(_ netip.Addr, owner int) bool { return owner == link })
}

func (m maps) Compare(e datapath.Entry) (differences []datapath.Difference, err error) {
	unlock, err := m.kernel.lock("Maps.Compare")
	defer unlock()
	if err == nil && m.kernel.byLink[e.Link] != e {
		differences = append(differences, datapath.Difference{Kind: "map-entry-differs", Subject: fmt.Sprintf("map entry links %d", e.Link), Detail: "differs"})
	}
	return differences, err
}

func (m maps) Orphans(owners func() []datapath.Entry) (orphans []datapath.Orphan, err error) {
	unlock, err := m.kernel.lock("Maps.Orphans")
	defer unlock()
	if err != nil {
		return nil, err
	}
	k, desired := m.kernel, datapath.DesiredOf(owners())
	add := func(name string, key any, remove func()) {
		orphans = append(orphans, datapath.Orphan{
			Difference: datapath.Difference{Kind: "map-entry-orphan", Subject: fmt.Sprintf("map entry %s %v", name, key)},
			Remove: func(func() []datapath.Entry) error {
				defer k.use()()
				remove()
				return nil
			},
		})
	}
	for addr := range k.byAddr {
		if !desired.Addresses[addr] {
			add(bpf.Endpoints, addr, func() { delete(k.byAddr, addr) })
		}
	}
	for index := range k.byLink {
		if !desired.Links[index] {
			add(bpf.Links, index, func() { delete(k.byLink, index) })
		}
	}
	for id := range k.traffic {
		if !desired.IDs[uint32(id)] {
			add(bpf.Drops, id, func() { delete(k.traffic, id) })
		}
	}
	return orphans, nil
}

// Entries returns the entries by link.
func (m maps) Entries() (map[int]datapath.Entry, error) {
	unlock, err := m.kernel.lock("Maps.Entries")
	defer unlock()
	return stdmaps.Clone(m.kernel.byLink), err
}

// Traffic returns what Count set.
func (k *Kernel) Traffic(id uint16) (abi.Traffic, error) {
	unlock, err := k.lock("Traffic")
	defer unlock()
	if err != nil {
		return abi.Traffic{}, err
	}
	counted, ok := k.traffic[id]
	if !ok {
		return abi.Traffic{}, datapath.ErrNoLink
	}
	return counted, nil
}

// Connections has none: no packet passes here.
func (k *Kernel) Connections() (datapath.ConnectionUse, error) {
	unlock, err := k.lock("Connections")
	defer unlock()
	return datapath.ConnectionUse{}, err
}

// Unmanaged has none, either.
func (k *Kernel) Unmanaged() (abi.Unmanaged, error) {
	unlock, err := k.lock("Unmanaged")
	defer unlock()
	return abi.Unmanaged{}, err
}

// Totals sums what Count set.
func (k *Kernel) Totals() (total abi.Traffic, err error) {
	unlock, err := k.lock("Totals")
	defer unlock()
	for _, counted := range k.traffic {
		total.Add(counted)
	}
	return total, err
}
