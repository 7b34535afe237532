package datapath

import "porin.dev/porin/bpf/abi"

// Maps is what [Step] and the readers of counters need of the BPF maps. All methods may be called concurrently, Put
// and Delete not for the same endpoint.
type Maps interface {
	// Put makes the endpoint's entries what e says, whatever they were; its counters go on. It fails with
	// [ErrAddressInUse] when another link has one of the addresses: then what it wrote is left to Delete.
	Put(e Entry) error
	// Mend is Put after a restart: it leaves alone what is right, and says what it made anew.
	Mend(e Entry) (replaced []string, err error)
	// Delete removes the entries of the link, if they are the endpoint's or id is abi.NoEndpoint, and its counters. From here on its packets
	// are dropped in both directions.
	Delete(link int, id uint16) error
	// Entries returns what the programs know of each link, by its index: ID, PodMAC and Addresses.
	Entries() (map[int]Entry, error)
	// Prune removes every entry that belongs to none of live, and names each.
	Prune(live []Entry) (removed []string, err error)
	// Traffic reads an endpoint's counters; [ErrNoLink] when it has none.
	Traffic(id uint16) (abi.Traffic, error)
	// Totals sums the counters of all endpoints, those that are gone since Start as well.
	Totals() (abi.Traffic, error)
}
