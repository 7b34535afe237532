package datapath

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/bpfarray"
)

// Maps is what [Step] needs of the BPF maps. As a [Part] it is an endpoint's entries by link, by address and by number.
// Update fails with [ErrAddressInUse] when another link has one of the addresses. From Delete on, which removes the
// entries by link only when they are the endpoint's or e.ID is abi.NoEndpoint, its packets are dropped in both
// directions.
type Maps interface {
	Part
	// Entries returns what the programs know of each link, by its index: ID, PodMAC and Addresses.
	Entries() (map[int]Entry, error)
}

// Counters reads what the programs have counted.
type Counters interface {
	// Traffic reads an endpoint's counters; [ErrNoLink] when it has none.
	Traffic(id uint16) (abi.Traffic, error)
	// Totals sums the counters of all endpoints, including those deleted since Start.
	Totals() (abi.Traffic, error)
	// Connections tells how full the map of connections is.
	Connections() (ConnectionUse, error)
	// Unmanaged counts decisions about unknown pods of other nodes.
	Unmanaged() (abi.Unmanaged, error)
}

// bpfMaps are the maps, with what is done in them for an endpoint.
type bpfMaps loader.Maps

// kernelMaps is [Maps] and [Counters] in the kernel. The order of writing and deleting matters: the entry by link,
// which knows the addresses, is there first and goes last, so that whatever was interrupted can be found again.
type kernelMaps struct {
	mu             sync.RWMutex // guards the field below; held while a map is read or written, or a link goes down: none blocks long
	maps           *bpfMaps     // nil unless started
	deletedTraffic deletedTraffic
	updates        atomic.Uint64 // how often an endpoint was written

	corrected atomic.Uint64 // as in ConnectionUse
}

// use runs f with the maps.
func (k *kernelMaps) use(f func(m *bpfMaps) error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.maps == nil {
		return ErrNotStarted
	}
	return f(k.maps)
}

// set gives it the maps, or takes them away with nil.
func (k *kernelMaps) set(m *bpfMaps) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.maps = m
}

// unlessUpdated calls f, with exclusive use of the maps, unless an endpoint was written since k.updates was as given.
func (k *kernelMaps) unlessUpdated(updates uint64, f func(m *bpfMaps) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.maps == nil:
		return ErrNotStarted
	case k.updates.Load() != updates:
		return errUpdated
	}
	return f(k.maps)
}

func (k *kernelMaps) Update(e Entry) error {
	return k.use(func(m *bpfMaps) error {
		k.updates.Add(1)
		if err := retryENOMEM(func() error { return m.put(e) }); err != nil {
			return fmt.Errorf("write map entries: %w", err)
		}
		return nil
	})
}

func (k *kernelMaps) Delete(e Entry) error {
	return k.use(func(m *bpfMaps) error {
		err := m.deleteLink(e.Link, e.ID)
		if e.ID != uint16(abi.NoEndpoint) {
			err = errors.Join(err, m.raiseGeneration(e.ID), k.deletedTraffic.addEndpoint(m, e.ID))
		}
		if err != nil {
			return fmt.Errorf("delete map entries: %w", err)
		}
		return nil
	})
}

// lastWait is the longest wait for the kernel's reserve of map elements, of twice as long in all.
const lastWait = 100 * time.Millisecond

// retryENOMEM calls write again while the kernel has no element at hand. Maps that are not preallocated take their
// elements from a small reserve of each CPU, which is filled up after it was used (bpf_mem_alloc, Linux 6.1): many
// writes in a row can find it empty on a node with memory to spare.
func retryENOMEM(write func() error) error {
	for wait := 100 * time.Microsecond; ; wait *= 2 {
		if err := write(); !errors.Is(err, unix.ENOMEM) || wait > lastWait {
			return err
		}
		time.Sleep(wait)
	}
}

func (m *bpfMaps) put(e Entry) error {
	if uint32(e.ID) >= m.Passed.MaxEntries() {
		return fmt.Errorf("endpoint %d: %w", e.ID, ErrFull)
	}
	link := linkValue(e)
	var before abi.Link
	if err := m.Links.Lookup(uint32(e.Link), &before); err == nil && before != link {
		if err := m.deleteAddrs(e.Link, before); err != nil {
			return err
		}
	}
	if before.Id != uint16(abi.NoEndpoint) && before.Id != link.Id { // its index is another endpoint's now
		if err := m.raiseGeneration(before.Id); err != nil {
			return err
		}
	}
	if before.Id != link.Id || m.generation(e.ID) == 0 {
		if err := m.raiseGeneration(e.ID); err != nil {
			return err
		}
	}
	if err := m.Links.Put(uint32(e.Link), link); err != nil {
		return full(err)
	}
	err := m.Drops.Update(uint32(e.ID), make([]abi.Drops, m.CPUs), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return full(err)
	}
	for _, addr := range e.Addresses.List() {
		if err := m.putAddr(abi.AddrOf(addr), e); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return m.raiseGeneration(uint16(abi.NoEndpoint)) // the proxy asks again whose addresses are
}

// generation is 0 for a number that no endpoint has had, or when it cannot be read.
func (m *bpfMaps) generation(id uint16) uint32 {
	slot, err := bpfarray.Read[abi.Slot](m.Slots, uint32(id))
	if err != nil {
		return 0
	}
	return slot.Generation
}

// raiseGeneration makes all connections of the number's former endpoint invalid.
func (m *bpfMaps) raiseGeneration(id uint16) error {
	slot := abi.Slot{Generation: m.generation(id) + 1}
	if slot.Generation == 0 {
		slot.Generation = 1
	}
	if err := m.Slots.Put(uint32(id), slot); err != nil {
		return fmt.Errorf("raise the generation of endpoint %d: %w", id, err)
	}
	return nil
}

// putAddr writes the entry of an address unless another link has it. An entry that its link's own entry does not know
// has no owner.
func (m *bpfMaps) putAddr(addr abi.Addr, e Entry) error {
	value := endpointValue(e)
	err := m.Endpoints.Update(addr, value, ebpf.UpdateNoExist)
	if !errors.Is(err, ebpf.ErrKeyExist) {
		return full(err)
	}
	var owner abi.Endpoint
	if err := m.Endpoints.Lookup(addr, &owner); err != nil {
		return err
	}
	if owner.Ifindex != value.Ifindex && m.has(owner.Ifindex, addr) {
		return fmt.Errorf("%w: link %d, endpoint %d", ErrAddressInUse, owner.Ifindex, owner.Id)
	}
	return m.Endpoints.Put(addr, value)
}

// has reports whether the address is among those of the link. An unreadable entry counts as present.
func (m *bpfMaps) has(index uint32, addr abi.Addr) bool {
	var link abi.Link
	err := m.Links.Lookup(index, &link)
	return gone(err) != nil || err == nil && (link.Ipv4 == addr || link.Ipv6 == addr)
}

// deleteLink removes the entries that a link has, unless they are another endpoint's; abi.NoEndpoint stands for any.
func (m *bpfMaps) deleteLink(index int, id uint16) error {
	var link abi.Link
	err := m.Links.Lookup(uint32(index), &link)
	if errors.Is(err, ebpf.ErrKeyNotExist) || err == nil && link.Id != id && id != uint16(abi.NoEndpoint) {
		return nil
	}
	if err == nil {
		err = m.deleteAddrs(index, link)
	}
	if err == nil {
		err = m.raiseGeneration(link.Id)
	}
	if err != nil {
		return err
	}
	return gone(m.Links.Delete(uint32(index)))
}

// deleteAddrs removes the entries of the link's addresses, where they do point to it.
func (m *bpfMaps) deleteAddrs(index int, link abi.Link) error {
	for _, addr := range []abi.Addr{link.Ipv4, link.Ipv6} {
		var owner abi.Endpoint
		err := m.Endpoints.Lookup(addr, &owner)
		if err == nil && owner.Ifindex == uint32(index) {
			err = m.Endpoints.Delete(addr)
		}
		if gone(err) != nil {
			return err
		}
	}
	return nil
}

// deleteSame deletes an entry if it is still as given.
func deleteSame[K, V comparable](m *ebpf.Map, key K, value V) error {
	var now V
	if err := m.Lookup(key, &now); err != nil || now != value {
		return gone(err)
	}
	return gone(m.Delete(key))
}

// gone takes "it was not there" for a success.
func gone(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// full gives the kernel's E2BIG its meaning.
func full(err error) error {
	if errors.Is(err, unix.E2BIG) {
		return ErrFull
	}
	return err
}
