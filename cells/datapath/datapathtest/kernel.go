// Package datapathtest has doubles of the datapath's part of the kernel, for tests without root.
package datapathtest

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
)

// Kernel is a [datapath.Links], [datapath.Maps] and [datapath.Pins] in memory. The datapath's own tests hold it
// against the real ones. Its zero value is an empty node.
type Kernel struct {
	// Fail, when set, is asked before each method that returns an error, by the method's name; what it returns is
	// the method's error, and the method did nothing.
	Fail func(method string) error

	mu      sync.Mutex // guards the fields below
	links   map[int]datapath.Link
	wired   map[int]datapath.Entry
	byLink  map[int]datapath.Entry
	byAddr  map[netip.Addr]int // the link
	traffic map[uint16]abi.Traffic
}

// AddLink adds an interface, as the CNI plugin does.
func (k *Kernel) AddLink(link datapath.Link) {
	defer k.use()()
	k.links[link.Index] = link
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
		k.links, k.wired, k.byLink = map[int]datapath.Link{}, map[int]datapath.Entry{}, map[int]datapath.Entry{}
		k.byAddr, k.traffic = map[netip.Addr]int{}, map[uint16]abi.Traffic{}
	}
	return k.mu.Unlock
}

// Link finds a link.
func (k *Kernel) Link(index int) (datapath.Link, error) {
	unlock, err := k.lock("Link")
	defer unlock()
	if err != nil {
		return datapath.Link{}, err
	}
	link, ok := k.links[index]
	if !ok {
		return datapath.Link{}, datapath.ErrNoLink
	}
	return link, nil
}

// LinkByName finds a link.
func (k *Kernel) LinkByName(name string) (datapath.Link, error) {
	unlock, err := k.lock("LinkByName")
	defer unlock()
	if err != nil {
		return datapath.Link{}, err
	}
	for _, link := range k.links {
		if link.Name == name {
			return link, nil
		}
	}
	return datapath.Link{}, datapath.ErrNoLink
}

// Links lists the host ends.
func (k *Kernel) Links() (list []datapath.Link, err error) {
	unlock, err := k.lock("Links")
	defer unlock()
	for _, link := range k.links {
		if link.Marked() {
			list = append(list, link)
		}
	}
	return list, err
}

// Wire wires a link that is there.
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

// BringUp brings a link up.
func (k *Kernel) BringUp(index int) error {
	unlock, err := k.lock("BringUp")
	defer unlock()
	if err != nil {
		return err
	}
	link, ok := k.links[index]
	if !ok {
		return datapath.ErrNoLink
	}
	link.Up = true
	k.links[index] = link
	return nil
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
	k.wired[e.Link] = e
	return nil
}

// Unwire unwires a link.
func (k *Kernel) Unwire(e datapath.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wired, e.Link)
}

// Remove removes a link and its wiring.
func (k *Kernel) Remove(ctx context.Context, index int) error {
	unlock, err := k.lock("Remove")
	defer unlock()
	if err != nil {
		return err
	}
	delete(k.links, index)
	delete(k.wired, index)
	return ctx.Err()
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
