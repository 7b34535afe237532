package datapathtest

import (
	"fmt"
	"slices"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
)

// Put writes an endpoint's entries.
func (k *Kernel) Put(e datapath.Entry) error {
	unlock, err := k.lock("Put")
	defer unlock()
	if err != nil {
		return err
	}
	return k.put(e)
}

// Mend is Put, and says whether the entries were others or not there.
func (k *Kernel) Mend(e datapath.Entry) (replaced []string, err error) {
	unlock, err := k.lock("Mend")
	defer unlock()
	if err != nil {
		return nil, err
	}
	if before, ok := k.byLink[e.Link]; !ok || before != e {
		replaced = []string{fmt.Sprintf("map entries of link %d", e.Link)}
	}
	return replaced, k.put(e)
}

func (k *Kernel) put(e datapath.Entry) error {
	k.deleteAddrs(e.Link)
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

// Delete removes an endpoint's entries.
func (k *Kernel) Delete(link int, id uint16) error {
	unlock, err := k.lock("Delete")
	defer unlock()
	if err != nil {
		return err
	}
	delete(k.traffic, id)
	if k.byLink[link].ID == id {
		k.deleteAddrs(link)
		delete(k.byLink, link)
	}
	return nil
}

func (k *Kernel) deleteAddrs(link int) {
	for addr, owner := range k.byAddr {
		if owner == link {
			delete(k.byAddr, addr)
		}
	}
}

// Prune removes the entries of others.
func (k *Kernel) Prune(live []datapath.Entry) (removed []string, err error) {
	unlock, err := k.lock("Prune")
	defer unlock()
	if err != nil {
		return nil, err
	}
	keep := map[int]bool{}
	ids := map[uint16]bool{}
	for _, e := range live {
		keep[e.Link], ids[e.ID] = true, true
	}
	for addr, link := range k.byAddr {
		if !keep[link] {
			delete(k.byAddr, addr)
			removed = append(removed, fmt.Sprintf("entry of map %s: %s", bpf.Endpoints, addr))
		}
	}
	for link := range k.byLink {
		if !keep[link] {
			delete(k.byLink, link)
			removed = append(removed, fmt.Sprintf("entry of map %s: %d", bpf.Links, link))
		}
	}
	for id := range k.traffic {
		if !ids[id] {
			delete(k.traffic, id)
			removed = append(removed, fmt.Sprintf("entry of map %s: %d", bpf.Traffic, id))
		}
	}
	slices.Sort(removed)
	return removed, nil
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

// Totals sums what Count set.
func (k *Kernel) Totals() (total abi.Traffic, err error) {
	unlock, err := k.lock("Totals")
	defer unlock()
	for _, counted := range k.traffic {
		total.Add(counted)
	}
	return total, err
}
