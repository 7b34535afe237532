package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
)

// How many values are read in one system call, and how many entries at the least: a whole bucket of the kernel's hash
// must fit, and as it has as many buckets as entries there may be, a bucket has a few.
const (
	batchValues  = 1024
	batchEntries = 64
)

// eachEntry visits the entries of a hash map, each with its one value or its value on every CPU, which are valid during
// the call only. It may be written meanwhile: every entry that stays is visited, an entry that comes or goes may
// be. That is more than iterating key by key can promise, which starts over when it meets a key that went.
func eachEntry[K comparable, V any](m *ebpf.Map, visit func(key K, values []V)) error {
	copies := 1
	if m.Type() == ebpf.PerCPUHash {
		var err error
		if copies, err = ebpf.PossibleCPU(); err != nil {
			return fmt.Errorf("count CPUs: %w", err)
		}
	}
	size := max(batchEntries, batchValues/copies)
	keys, values := make([]K, size), make([]V, size*copies)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i, key := range keys[:n] {
			visit(key, values[i*copies:(i+1)*copies])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read map %s: %w", m, err)
		}
	}
}

// readAll reads a map of one value an entry.
func readAll[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := map[K]V{}
	err := eachEntry(m, func(key K, values []V) { all[key] = values[0] })
	return all, err
}

// actualEntries is all that the programs know.
type actualEntries struct {
	byLink    map[uint32]abi.Link
	byAddress map[abi.Addr]abi.Endpoint
	counters  map[uint32]abi.Drops // of one CPU
}

func (k *kernelMaps) list() (all actualEntries, err error) {
	err = k.use(func(m *bpfMaps) error {
		var linksErr, addressesErr, countersErr error
		all.byLink, linksErr = readAll[uint32, abi.Link](m.Links)
		all.byAddress, addressesErr = readAll[abi.Addr, abi.Endpoint](m.Endpoints)
		all.counters, countersErr = readAll[uint32, abi.Drops](m.Drops)
		return errors.Join(linksErr, addressesErr, countersErr)
	})
	return all, err
}

func (k *kernelMaps) Entries() (map[int]Entry, error) {
	entries := map[int]Entry{}
	err := k.use(func(m *bpfMaps) error {
		all, err := readAll[uint32, abi.Link](m.Links)
		for index, link := range all {
			entries[int(index)] = Entry{ID: link.Id, Link: int(index), PodMAC: link.PodMac.Byte, Addresses: addressesOf(link)}
		}
		return err
	})
	return entries, err
}

// addressesOf has the zero netip.Addr where an entry has no address of the family.
func addressesOf(link abi.Link) (addresses endpoint.Addresses) {
	if link.Ipv4 != (abi.Addr{}) {
		addresses.IPv4 = link.Ipv4.IP()
	}
	if link.Ipv6 != (abi.Addr{}) {
		addresses.IPv6 = link.Ipv6.IP()
	}
	return addresses
}

// endpointOn returns the number of the endpoint that the programs know the link of.
func (k *kernelMaps) endpointOn(link int) (id uint16, known bool) {
	err := k.use(func(m *bpfMaps) error {
		var value abi.Link
		err := m.Links.Lookup(uint32(link), &value)
		id = value.Id
		return err
	})
	return id, err == nil
}
