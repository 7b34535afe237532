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
	var links map[uint32]abi.Link
	var addresses map[abi.Addr]abi.Endpoint
	var counters map[uint32]abi.Drops // of one CPU
	err = k.use(func(m *bpfMaps) error {
		var linksErr, addressesErr, countersErr error
		links, linksErr = readAll[uint32, abi.Link](m.Links)
		addresses, addressesErr = readAll[abi.Addr, abi.Endpoint](m.Endpoints)
		counters, countersErr = readAll[uint32, abi.Drops](m.Drops)
		return errors.Join(linksErr, addressesErr, countersErr)
	})
	d := DesiredOf(owners())
	for addr, value := range addresses {
		owned := func(d Desired) bool { return d.Addresses[addr.IP()] }
		if !owned(d) {
			remove := func(m *bpfMaps) error { return deleteSame(m.Endpoints, addr, value) }
			orphans = append(orphans, k.orphan(bpf.Endpoints, addr.IP().String(), value, owned, remove))
		}
	}
	for index, value := range links {
		owned := func(d Desired) bool { return d.Links[int(index)] }
		if !owned(d) {
			remove := func(m *bpfMaps) error {
				return errors.Join(deleteSame(m.Links, index, value), m.raiseGeneration(value.Id)) // its connections end, too
			}
			orphans = append(orphans, k.orphan(bpf.Links, strconv.Itoa(int(index)), value, owned, remove))
		}
	}
	for id, value := range counters {
		owned := func(d Desired) bool { return d.IDs[id] }
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
