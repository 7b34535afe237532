package allocator

import (
	"net/netip"
	"slices"
)

// NodeAddress is an address of the node itself that lies in one of its blocks.
type NodeAddress struct {
	Addr   netip.Addr
	IfName string
	Owner  Handle // who had the address before the node; "" is nobody
}

// SetNodeAddresses says which addresses the interfaces of the node have, and the names of the interfaces. From now on these are
// given to nobody, and those of the call before that are not among them may be given again. Who has one already keeps it. It
// returns what is new since the call before and lies in a block. An allocation pays nothing for it: the addresses are no
// longer among those that are free.
func (a *Allocator) SetNodeAddresses(ofNode map[netip.Addr]string) (added []NodeAddress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	before := a.nodeAddresses
	a.nodeAddresses = ofNode
	for addr := range before {
		if e := a.index.known(addr); e != nil && ofNode[addr] == "" {
			e.ofNode = false
			if e.state == nodeOwn {
				e.leave()
				e.becomeFree()
			}
		}
	}
	for addr, ifname := range ofNode {
		if a.markNodeAddress(addr) && before[addr] == "" {
			one := NodeAddress{Addr: addr, IfName: ifname}
			if r := a.index.owner(addr); r != nil {
				one.Owner = r.Owner
			}
			added = append(added, one)
		}
	}
	slices.SortFunc(added, func(x, y NodeAddress) int { return x.Addr.Compare(y.Addr) })
	return added
}

// markNodeAddress has an address be given to nobody, and reports whether it lies in a block.
func (a *Allocator) markNodeAddress(addr netip.Addr) bool {
	b := a.index.home(addr)
	if b == a.index.outside {
		return false
	}
	e := b.address(addr)
	e.ofNode = true
	if e.state == unused || e.state == free || e.state == drained {
		e.leave()
		e.enter(nodeOwn)
	}
	return true
}

// Covers reports whether an address lies in a block and may be given out from it.
func (a *Allocator) Covers(addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.index.home(addr) != a.index.outside
}
