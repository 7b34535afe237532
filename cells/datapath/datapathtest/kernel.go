// Package datapathtest has a fake of the datapath's part of the kernel, for tests without root.
package datapathtest

import (
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/link"
)

// Kernel is a node in memory, with [datapath.Links], [datapath.Maps], [datapath.Counters] and [datapath.Pins]. The
// datapath's own tests run on it and on the real one. Its zero value is an empty node.
type Kernel struct {
	// Fail, when set, is asked before each method that returns an error, by "Links." or "Maps." and the method's
	// name; it returns the method's error, and the method did nothing.
	Fail func(method string) error

	mu       sync.Mutex                // guards the fields below
	links    map[int]netlink.LinkAttrs // of veths
	attached map[int]datapath.Entry    // what has filters, routes and neighbour entries
	byLink   map[int]datapath.Entry
	byAddr   map[netip.Addr]int // the link
	traffic  map[uint16]abi.Traffic
}

// AddLink adds an end of a veth pair, or changes the one of its index, which it returns.
func (k *Kernel) AddLink(attrs netlink.LinkAttrs) (index int) {
	defer k.use()()
	k.links[attrs.Index] = attrs
	return attrs.Index
}

// RemoveLink removes an interface with its filters, routes and neighbour entries. The map entries stay.
func (k *Kernel) RemoveLink(index int) {
	defer k.use()()
	delete(k.links, index)
	delete(k.attached, index)
}

// HostEnds lists the interfaces that bear Porin's mark.
func (k *Kernel) HostEnds() (list []netlink.Link) {
	defer k.use()()
	for _, attrs := range k.links {
		if l := netlink.NewVeth(attrs); link.IsHostEnd(l) {
			list = append(list, l)
		}
	}
	return list
}

// Count sets what an endpoint has sent and received.
func (k *Kernel) Count(id uint16, counted abi.Traffic) {
	defer k.use()()
	k.traffic[id] = counted
}

// State counts what there is: map entries by link, by address and by endpoint, and links with filters.
type State struct{ Links, Addresses, Endpoints, Attached int }

// State returns the state.
func (k *Kernel) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return State{len(k.byLink), len(k.byAddr), len(k.traffic), len(k.attached)}
}

// Owner is the link that an address leads to; 0 when it leads nowhere.
func (k *Kernel) Owner(addr netip.Addr) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byAddr[addr]
}

// lock asks Fail, then locks, so that Fail may use the Kernel.
func (k *Kernel) lock(method string) (unlock func(), err error) {
	if k.Fail != nil {
		if err := k.Fail(method); err != nil {
			return func() {}, err
		}
	}
	return k.use(), nil
}

// use locks, and makes the maps the first time.
func (k *Kernel) use() (unlock func()) {
	k.mu.Lock()
	if k.links == nil {
		k.links, k.attached, k.byLink = map[int]netlink.LinkAttrs{}, map[int]datapath.Entry{}, map[int]datapath.Entry{}
		k.byAddr, k.traffic = map[netip.Addr]int{}, map[uint16]abi.Traffic{}
	}
	return k.mu.Unlock
}

// Links are the node's.
func (k *Kernel) Links() datapath.Links { return links{k} }

// Maps are the node's.
func (k *Kernel) Maps() datapath.Maps { return maps{k} }

// PrunePins finds none.
func (k *Kernel) PrunePins() ([]string, error) {
	unlock, err := k.lock("PrunePins")
	defer unlock()
	return nil, err
}
