// Package datapathtest has doubles of the datapath's part of the kernel, for tests without root.
package datapathtest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
)

// Kernel is a [datapath.Links], [datapath.Maps] and [datapath.Pins] in memory. The datapath's own tests hold it
// against the real ones. Its zero value is an empty node.
type Kernel struct {
	// Fail, when set, is asked before each method that returns an error, by the method's name; what it returns is
	// the method's error, and the method did nothing.
	Fail func(method string) error

	mu      sync.Mutex                // guards the fields below
	links   map[int]netlink.LinkAttrs // of veths
	wired   map[int]datapath.Entry
	byLink  map[int]datapath.Entry
	byAddr  map[netip.Addr]int // the link
	traffic map[uint16]abi.Traffic
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
	delete(k.wired, index)
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
type State struct{ Links, Addresses, Endpoints, Wired int }

// State returns the state.
func (k *Kernel) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return State{len(k.byLink), len(k.byAddr), len(k.traffic), len(k.wired)}
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
		k.links, k.wired, k.byLink = map[int]netlink.LinkAttrs{}, map[int]datapath.Entry{}, map[int]datapath.Entry{}
		k.byAddr, k.traffic = map[netip.Addr]int{}, map[uint16]abi.Traffic{}
	}
	return k.mu.Unlock
}

// Link finds a link.
func (k *Kernel) Link(index int) (netlink.Link, error) {
	unlock, err := k.lock("Link")
	defer unlock()
	if err != nil {
		return nil, err
	}
	attrs, ok := k.links[index]
	if !ok {
		return nil, datapath.ErrNoLink
	}
	return netlink.NewVeth(attrs), nil
}

// LinkByName finds a link.
func (k *Kernel) LinkByName(name string) (netlink.Link, error) {
	unlock, err := k.lock("LinkByName")
	defer unlock()
	if err != nil {
		return nil, err
	}
	for _, attrs := range k.links {
		if attrs.Name == name {
			return netlink.NewVeth(attrs), nil
		}
	}
	return nil, datapath.ErrNoLink
}

// Wire wires a link that is there, and brings it up.
func (k *Kernel) Wire(e datapath.Entry) error { return k.wire("Wire", e) }

// Rewire is Wire, and says whether the link was wired otherwise or not at all.
func (k *Kernel) Rewire(e datapath.Entry) (replaced []string, err error) {
	k.mu.Lock()
	before, ok := k.wired[e.Link]
	k.mu.Unlock()
	if !ok || before != e {
		replaced = []string{fmt.Sprintf("wiring of link %d", e.Link)}
	}
	return replaced, k.wire("Rewire", e)
}

// WaitForCarrier does not wait: a link has a carrier while it is up.
func (k *Kernel) WaitForCarrier(ctx context.Context, host, _ int, _ *endpointmanager.Namespace) error {
	unlock, err := k.lock("WaitForCarrier")
	defer unlock()
	if err != nil {
		return err
	}
	attrs, ok := k.links[host]
	switch {
	case !ok:
		return datapath.ErrNoLink
	case attrs.Flags&net.FlagUp == 0:
		return fmt.Errorf("%s is down and never has a carrier", attrs.Name)
	}
	return ctx.Err()
}

// BringUp brings a link up.
func (k *Kernel) BringUp(index int) error { return k.bring("BringUp", index, true) }

// BringDown takes a link down.
func (k *Kernel) BringDown(index int) error { return k.bring("BringDown", index, false) }

func (k *Kernel) bring(method string, index int, up bool) error {
	unlock, err := k.lock(method)
	defer unlock()
	if err != nil {
		return err
	}
	if _, ok := k.links[index]; !ok {
		return datapath.ErrNoLink
	}
	k.set(index, up)
	return nil
}

// set expects the lock.
func (k *Kernel) set(index int, up bool) {
	attrs := k.links[index]
	attrs.Flags &^= net.FlagUp
	if up {
		attrs.Flags |= net.FlagUp
	}
	k.links[index] = attrs
}

func (k *Kernel) wire(method string, e datapath.Entry) error {
	unlock, err := k.lock(method)
	defer unlock()
	if err != nil {
		return err
	}
	if _, ok := k.links[e.Link]; !ok {
		return fmt.Errorf("%s: %w", method, datapath.ErrNoLink)
	}
	k.set(e.Link, true)
	k.wired[e.Link] = e
	return nil
}

// Unwire unwires a link, and takes it down.
func (k *Kernel) Unwire(e datapath.Entry) {
	defer k.use()()
	delete(k.wired, e.Link)
	if _, ok := k.links[e.Link]; ok {
		k.set(e.Link, false)
	}
}

// PruneWiring finds nothing: there are no routes but those of Wire.
func (k *Kernel) PruneWiring([]datapath.Entry) ([]string, error) {
	unlock, err := k.lock("PruneWiring")
	defer unlock()
	return nil, err
}

// PrunePins finds none.
func (k *Kernel) PrunePins() ([]string, error) {
	unlock, err := k.lock("PrunePins")
	defer unlock()
	return nil, err
}
